#!/bin/sh
# certificates.sh FOLDER: creates a CA, and a certificate each for kube-scheduler and the extender,
# valid for a year. To renew, run it again and restart both. FOLDER then has ca.crt, server.crt,
# server.key, client.crt and client.key; the CA's key is not kept.
set -eu
folder=${1:?"usage: certificates.sh FOLDER"}
days=365
umask 077
mkdir -p "$folder"
cd "$folder"

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

# sign NAME SUBJECT EXTENSIONS
sign() {
    new_key "$1"
    printf '%s\n' "$3" >"$1.ext"
    openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" \
        -sha256 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
    rm "$1.csr" "$1.ext"
}

new_key ca
openssl req -x509 -new -key ca.key -subj /CN=ballast-extender-ca -days "$days" -sha256 \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 \
    -addext keyUsage=critical,keyCertSign,cRLSign -out ca.crt
sign server /CN=ballast-extender.ballast-system.svc \
    "subjectAltName=DNS:ballast-extender.ballast-system.svc
extendedKeyUsage=serverAuth"
sign client /CN=system:kube-scheduler extendedKeyUsage=clientAuth
rm -f ca.key ca.srl
