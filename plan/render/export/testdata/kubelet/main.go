// Program kubelet reads a file like the kubelet's --config, and prints its errors, using Kubernetes' own code. It is
// a separate module, so that rackless does not depend on Kubernetes. The tests of render/export run it.
package main

import (
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	features "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/features" // registers the gates
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
)

func config(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, codecs, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		return err
	}
	object, _, err := codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return err
	}
	c, ok := object.(*kubeletconfig.KubeletConfiguration)
	if !ok {
		return fmt.Errorf("%s is no KubeletConfiguration", path)
	}
	return validation.ValidateKubeletConfiguration(c, features.DefaultFeatureGate)
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubelet FILE")
		os.Exit(2)
	}
	if err := config(os.Args[1]); err != nil {
		fmt.Println(err)
	}
}
