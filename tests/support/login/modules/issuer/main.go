// An OpenID provider for tests: the library of zitadel with the users and the login page of its example, on one
// address over TLS. It prints nothing but its log, and forgets everything when it ends.
//
// USERS is a JSON file of users by ID, as the example's storage reads it.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// client is one of the example's with ID tokens that live shorter than its hour, and that name the user's address.
type client struct {
	op.Client
	lifetime time.Duration
}

func (c client) IDTokenLifetime() time.Duration       { return c.lifetime }
func (c client) IDTokenUserinfoClaimsAssertion() bool { return true }

type store struct {
	*storage.Storage
	lifetime time.Duration
}

func (s store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{found, s.lifetime}, nil
}

func main() {
	listen := flag.String("listen", "", "address, such as 127.0.0.1:8443; the issuer is https:// and this")
	certificate := flag.String("certificate", "", "PEM file")
	key := flag.String("key", "", "PEM file")
	users := flag.String("users", "", "JSON file")
	redirect := flag.String("redirect", "", "redirect URL of the one client, `web` with the secret `secret`")
	lifetime := flag.Duration("lifetime", time.Hour, "of ID tokens")
	flag.Parse()

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	known, err := storage.StoreFromFile(*users)
	if err == nil {
		storage.RegisterClients(storage.WebClient("web", "secret", *redirect))
		stored := store{storage.NewStorage(known), *lifetime}
		handler := exampleop.SetupServer("https://"+*listen, stored, log, false)
		err = http.ListenAndServeTLS(*listen, *certificate, *key, handler)
	}
	log.Error("ended", "error", err)
	os.Exit(1)
}
