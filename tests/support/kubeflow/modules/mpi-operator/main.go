// The controller of Kubeflow's MPI operator with its own settings, for a test: without election,
// and without its health server, which listens on port 8080 of all addresses.
package main

import (
	"context"
	"flag"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	"github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	kubeflow "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	"github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
)

func main() {
	option := options.NewServerOption()
	option.AddFlags(flag.CommandLine)
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", option.Kubeconfig)
	utilruntime.Must(err)
	config.QPS, config.Burst = float32(option.QPS), option.Burst
	utilruntime.Must(kubeflow.AddToScheme(scheme.Scheme))
	client, jobs := kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	own, theirs := externalversions.NewSharedInformerFactory(jobs, 0), informers.NewSharedInformerFactory(client, 0)
	core, ctx := theirs.Core().V1(), context.Background()
	made, err := controller.NewMPIJobController(
		ctx, client, jobs, nil, nil,
		core.ConfigMaps(), core.Secrets(), core.Services(), theirs.Batch().V1().Jobs(), core.Pods(),
		theirs.Scheduling().V1().PriorityClasses(), own.Kubeflow().V2beta1().MPIJobs(), option,
	)
	utilruntime.Must(err)
	theirs.Start(ctx.Done())
	own.Start(ctx.Done())
	utilruntime.Must(made.Run(option.Threadiness, ctx.Done()))
}
