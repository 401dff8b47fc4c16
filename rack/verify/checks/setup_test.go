package checks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

func setUpLab(t *testing.T) *fakeLab {
	t.Helper()
	l, err := lab.Parse("test.yaml", []byte(`
name: full
nodes:
  vm00: {image: debian-12+slurm, setup: [swapoff -a, {run: modprobe x, check: test -e /sys/module/x}]}
  vm01: {image: debian-12+slurm}
  vm02: {setup: [{run: a, check: b}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return newFakeLab(t, l)
}

func TestStepsOfSetupAreNamed(t *testing.T) {
	f := setUpLab(t)
	f.run = func(node string, argv []string) (bench.Output, error) {
		switch {
		case node == "vm02":
			return bench.Output{}, errSilent
		case argv[2] == "test -e /sys/module/x":
			return prints(1, "", "first\nsecond\n")
		}
		return prints(127, "", "")
	}
	want := []string{
		"setup | vm00 | failed | exit status 1: second | rackless up with the file of the lab runs it again",
		"setup | vm02 | unknown | " + errSilent.Error() + " | rackless ls shows whether the node runs",
	}
	got := checkLab(t, f, IDSetup)
	if diff := cmp.Diff(want, faults(got)); diff != "" || len(got) != 2 {
		t.Errorf("%d findings: %s", len(got), diff)
	}
	if got[0].Title != "setup: step 2 (modprobe x)" {
		t.Errorf("it is called %s", got[0].Title)
	}
	f.run = func(string, []string) (bench.Output, error) { return prints(0, "", "") }
	if bad := faults(checkLab(t, f, IDSetup)); len(bad) > 0 {
		t.Errorf("steps that hold: %q", bad)
	}
}

func TestTheLibrariesOfMPIAreChecked(t *testing.T) {
	l, err := lab.Parse("x.yaml", []byte("name: x\ndefaults: {image: debian-12+mpi, nic: virtio}\n"+
		"nodes: {a: {}, b: {nic: connectx-5}, c: {image: debian-12}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const old = "UCX 1.13.1, which gives up on soft RoCE"
	for says, want := range map[string]string{
		"# UCT version=1.13.1 revision 09f27c0\n/usr/bin/fi_info\n\tmax_cqe:\t\t\t32767\n": "ok libfabric beside " +
			old + "; queues have 32767 entries: MPI needs FI_UNIVERSE_SIZE, as rackless mpirun sets it",
		"# Library version: 1.20.1\n":                 "ok UCX 1.20.1",
		"# UCT version=1.13.1\n\tmax_cqe:\t\t32767\n": "failed " + old + ", and no libfabric",
		"/usr/bin/fi_info\n":                          "ok libfabric beside no UCX",
		"":                                            "failed no UCX, and no libfabric",
	} {
		f := setUpLab(t)
		f.run = func(node string, argv []string) (bench.Output, error) { return prints(0, says, "") }
		var got []string
		for _, n := range l.Nodes {
			for _, x := range mpiTransport(t.Context(), n, f) {
				got = append(got, x.Subject+" "+string(x.Status)+" "+x.Have)
			}
		}
		if len(got) != 1 || got[0] != "a "+want {
			t.Errorf("%q: %q, want %s", says, got, want)
		}
	}
}

func TestSlurmIsChecked(t *testing.T) {
	const again = "rackless up with the file of the lab starts Slurm again; in the node, see /var/log/slurm"
	for _, tt := range []struct {
		name, sinfo string
		job         string
		code        int
		want        []string
	}{
		{"ready", "vm00 idle none\nvm01 idle none\n", "vm01\nvm00\n", 0, nil},
		{"a node is down", "vm00 idle none\nvm01 down* Not responding\n", "", 0, []string{"slurm-nodes | " +
			"lab full | failed | 1 of 2 nodes: vm01 is down* Not responding | " + again}},
		{"a node is not known", "vm00 idle none\n", "", 0, []string{"slurm-nodes | lab full | failed | " +
			"1 of 2 nodes: vm01 is not known | " + again}},
		{"jobs run", "vm00 mixed none\nvm01 idle none\n", "", 0, []string{"slurm-job | lab full | unknown | " +
			"vm00 run jobs: not started beside them | rackless verify again when the jobs have ended"}},
		{"a job fails", "vm00 idle none\nvm01 idle none\n", "vm00\n", 1, []string{"slurm-job | lab full | " +
			"failed | vm00; exit status 1: srun: error: x | see /var/log/slurm of the nodes"}},
		{"a job runs twice on one", "vm00 idle none\nvm01 idle none\n", "vm00\nvm00\n", 0, []string{"slurm-job | " +
			"lab full | failed | vm00, vm00; exit status 0 | see /var/log/slurm of the nodes"}},
	} {
		f := setUpLab(t)
		f.run = func(node string, argv []string) (bench.Output, error) {
			if node != "vm00" {
				t.Errorf("%s is asked", node)
			}
			if argv[0] == "sinfo" {
				return prints(0, tt.sinfo, "")
			}
			return prints(tt.code, tt.job, strings.Repeat("srun: error: x\n", tt.code))
		}
		if diff := cmp.Diff(tt.want, faults(checkLab(t, f, IDSlurmNodes, IDSlurmJob))); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	f := setUpLab(t)
	f.run = func(string, []string) (bench.Output, error) {
		return prints(1, "", "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n")
	}
	got := checkLab(t, f, IDSlurmNodes)
	if len(got) != 1 || got[0].Status != finding.Failed ||
		!strings.Contains(got[0].Have, "Unable to contact slurm controller") {
		t.Errorf("a controller that is down: %+v", got)
	}
}
