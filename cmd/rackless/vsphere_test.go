package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rackless/rackless/internal/vspheretest"
)

// The command line in front of a simulated vCenter, and of what govc saves of it.
func TestVSphere(t *testing.T) {
	s := vspheretest.New(t)
	saved := s.Save(t)
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/vsphere.txtar"},
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "RACKLESS_VSPHERE"} {
				env.Setenv(name, s.Env(name))
			}
			for _, name := range []string{"RUN", "CACHE", "DATA"} {
				env.Setenv("RACKLESS_"+name, filepath.Join(env.WorkDir, name))
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "dump", "0021-HostSystem-host-21.xml"), saved, 0o600)
		},
	})
}
