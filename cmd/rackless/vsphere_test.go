package main

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/vspheretest"
)

// TestVSphereGuests runs programs of guests in a real node, in place of VMware Tools.
func TestVSphereGuests(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("labs are not started with -short")
	}
	user, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	s := vspheretest.New(t)
	run, err := os.MkdirTemp("/tmp", "rl") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nothingLeft(t, run) })
	agent := sync.OnceValues(func() (*guest.Agent, error) {
		r, err := rack.Open(rack.Dirs{Run: run}, "guests")
		if err != nil {
			return nil, err
		}
		return r.Agent(t.Context(), "vm00")
	})
	installTools(t, s, agent)
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/vsphere_guests.txtar"},
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE",
				"RACKLESS_VSPHERE"} {
				env.Setenv(name, s.Env(name))
			}
			env.Setenv("LOGIN", guestUser+":"+guestPassword)
			env.Setenv("RUN", run)
			env.Setenv("RACKLESS_RUN", run)
			env.Setenv("RACKLESS_CACHE", user.Cache)
			env.Setenv("RACKLESS_DATA", filepath.Join(env.WorkDir, "data"))
			return nil
		},
	})
}

// TestVSphere uses a simulated vCenter, and govc's output for it.
func TestVSphere(t *testing.T) {
	s := vspheretest.New(t)
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/vsphere.txtar"},
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "RACKLESS_VSPHERE"} {
				env.Setenv(name, s.Env(name))
			}
			for _, name := range []string{"RUN", "CACHE", "DATA"} {
				env.Setenv("RACKLESS_"+name, filepath.Join(env.WorkDir, name))
			}
			env.Setenv("HOST", s.Save(t, filepath.Join(env.WorkDir, "dump")))
			return nil
		},
	})
}
