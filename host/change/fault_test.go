package change_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
)

// A fault resets the machine, so the variable must have no effect on other hosts.
func TestFaultsAreForHostsOfRacklessEmulateOnly(t *testing.T) {
	t.Parallel()
	const vendor = "sys/class/dmi/id/sys_vendor"
	for _, c := range []struct{ name, vendor, text, want string }{
		{"a server", "Dell Inc.\n", "reset:1", `sys_vendor has "Dell Inc." here, not "rackless": unset it`},
		{"another emulator", "QEMU\n", "kill:1:begun", `RACKLESS_FAULT=kill:1:begun kills prepare`},
		{"a name that begins with it", "rackless Inc.\n", "count", `has "rackless Inc." here`},
		{"a machine without DMI", "", "count", `has "" here`},
		{"an unknown fault", "rackless\n", "explode:1", "RACKLESS_FAULT=explode:1: want kill:N, reset:N or count"},
		{"none", "Dell Inc.\n", "", ""},
		{"an emulated host", "rackless\n", "count", ""},
	} {
		s := &change.System{Root: t.TempDir()}
		if c.vendor != "" {
			path := filepath.Join(s.Root, vendor)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.vendor), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		fault, err := change.FaultFrom(s, c.text)
		if c.want != "" {
			if fault != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: fault %v, error %v, want %q", c.name, fault != nil, err, c.want)
			}
			continue
		}
		if err != nil || (fault != nil) != (c.text != "") {
			t.Errorf("%s: fault %v, error %v", c.name, fault != nil, err)
		}
	}
}
