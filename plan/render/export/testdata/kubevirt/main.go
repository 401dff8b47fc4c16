// Program kubevirt runs KubeVirt's own admission on the virtual machines of one file (machines.yaml) with the
// configuration of another (kubevirt.yaml), and prints the errors.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/defaults"
	netadmitter "kubevirt.io/kubevirt/pkg/network/admitter"
	"kubevirt.io/kubevirt/pkg/testutils"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	"kubevirt.io/kubevirt/pkg/virt-config/featuregate"
)

func main() {
	refused, err := judge(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, r := range refused {
		fmt.Println(r)
	}
}

func judge(machines, config string) (refused []string, err error) {
	var kv v1.KubeVirt
	if err := each(config, func(d *yaml.YAMLOrJSONDecoder) error { return d.Decode(&kv) }); err != nil {
		return nil, err
	}
	cluster, _, _ := testutils.NewFakeClusterConfigUsingKVConfig(&kv.Spec.Configuration)
	n := 0
	err = each(machines, func(d *yaml.YAMLOrJSONDecoder) error {
		var vm v1.VirtualMachine
		if err := d.Decode(&vm); err != nil || vm.Kind != "VirtualMachine" {
			return err
		}
		n++
		// In the order of KubeVirt's own webhook.
		if err := defaults.SetDefaultVirtualMachineInstanceSpec(cluster, &vm.Spec.Template.Spec); err != nil {
			return err
		}
		causes := slices.Concat(
			featuregate.ValidateFeatureGates(kv.Spec.Configuration.DeveloperConfiguration.FeatureGates,
				&vm.Spec.Template.Spec),
			netadmitter.NewValidator(field.NewPath("spec"), &vm.Spec.Template.Spec, cluster).ValidateCreation(),
			admitters.ValidateVirtualMachineSpec(field.NewPath("spec"), &vm.Spec, cluster, false))
		for _, c := range causes {
			refused = append(refused, fmt.Sprintf("%s: %s: %s", vm.Name, c.Field, c.Message))
		}
		return nil
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: no virtual machine in it", machines)
	}
	return refused, err
}

func each(path string, f func(*yaml.YAMLOrJSONDecoder) error) error {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	d := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		if err := f(d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}
