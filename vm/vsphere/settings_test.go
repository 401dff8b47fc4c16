//go:build linux

package vsphere

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

// Labs with vGPU and PVRDMA adapters can still be undone.
func TestSettingsOfEarlierVersionsAreUndone(t *testing.T) {
	have := &vmConfig{Hardware: types.VirtualHardware{NumCPU: 2}}
	o := &settingsOp{Want: map[string]string{"cpus": "2", "vgpu": "", "pvrdma": ""}}
	now, err := o.read(have)
	if err != nil || len(now) != 3 || now["cpus"] != "2" || now["vgpu"] != "" || now["pvrdma"] != "" {
		t.Errorf("settings %v, %v", now, err)
	}
	for name := range o.Want {
		s, err := recorded(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.set(&vmSpec{}, have, o.Want["cpus"]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := settingNamed("vgpu"); err == nil {
		t.Error("a lab file can set vgpu")
	}
}
