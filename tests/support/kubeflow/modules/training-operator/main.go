// The controllers of Kubeflow's training operator with their own settings, for a test: without its
// webhooks, which listen on all addresses and read their certificates from a folder that all tests
// would share, and without MPIJob, which is the MPI operator's here.
package main

import (
	"flag"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
)

func main() {
	health := flag.String("health-probe-bind-address", "", "address, such as 127.0.0.1:8081")
	gangs := flag.String("gang-scheduler-name", "", "as the operator's own flag; not volcano")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	utilruntime.Must(kubeflow.AddToScheme(scheme.Scheme))
	utilruntime.Must(volcano.AddToScheme(scheme.Scheme))
	utilruntime.Must(schedulerplugins.AddToScheme(scheme.Scheme))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
	})
	utilruntime.Must(err)
	setup := common.GenNonGangSchedulerSetupFunc()
	if *gangs != "" {
		setup = common.GenSchedulerPluginsSetupFunc(manager.GetClient(), *gangs)
	}
	for kind, add := range controllers.SupportedSchemeReconciler {
		if kind != kubeflow.MPIJobKind {
			utilruntime.Must(add(manager, setup, 1))
		}
	}
	utilruntime.Must(manager.AddReadyzCheck("readyz", healthz.Ping))
	if manager.Start(ctrl.SetupSignalHandler()) != nil {
		os.Exit(1)
	}
}
