package advise

import (
	"errors"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
)

func TestEachFormOfAnEditIsRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want Edit
	}{
		{"swap 0000:41:00.0 0000:06:00.0", Edit{Op: OpSwap, Device: "0000:41:00.0", Other: "0000:06:00.0"}},
		{"swap NIC0 GPU3", Edit{Op: OpSwap, Device: "NIC0", Other: "GPU3"}},
		{"  swap   41:00.0 00000000:06:00.0 ", Edit{Op: OpSwap, Device: "0000:41:00.0", Other: "0000:06:00.0"}},
		{"move 0000:41:00.0 to 0", Edit{Op: OpMove, Device: "0000:41:00.0"}},
		{"move NIC1 to 3", Edit{Op: OpMove, Device: "NIC1", Count: 3}},
		{"move 0000:41:00.0 below 0000:00:03.1", Edit{Op: OpMoveBelow, Device: "0000:41:00.0", Other: "0000:00:03.1"}},
		{"without 0000:21:00.0", Edit{Op: OpWithout, Device: "0000:21:00.0"}},
		{"without tenants", Edit{Op: OpWithoutTenants}},
		{"add node vm02", Edit{Op: OpAddNode, Node: "vm02"}},
		{"add node vm02 like vm00", Edit{Op: OpAddNode, Node: "vm02", Like: "vm00"}},
		{"remove node vm01", Edit{Op: OpRemoveNode, Node: "vm01"}},
		{"reserve 8", Edit{Op: OpReserve, Count: 8}},
		{"cpus vm00 14", Edit{Op: OpCPUs, Node: "vm00", Count: 14}},
		{"cpus auto", Edit{Op: OpCPUs}},
		{"memory vm00 64GiB", Edit{Op: OpMemory, Node: "vm00", Memory: 64 * lab.GiB}},
		{"memory 512MiB", Edit{Op: OpMemory, Memory: 512 * lab.MiB}},
		{"memory vm00 auto", Edit{Op: OpMemory, Node: "vm00"}},
		{"workload gpu-compute", Edit{Op: OpWorkload, Workload: lab.WorkloadGPUCompute}},
		{"smt off", Edit{Op: OpSMT, Setting: lab.Off}},
		{"smt on vm01", Edit{Op: OpSMT, Setting: lab.On, Node: "vm01"}},
		{"guest-numa auto vm01", Edit{Op: OpGuestNUMA, Setting: lab.Auto, Node: "vm01"}},
		{"hugepages 2MiB", Edit{Op: OpHugepages, Hugepages: lab.Hugepages2MiB}},
		{"hugepages off", Edit{Op: OpHugepages, Hugepages: lab.HugepagesOff}},
	} {
		t.Run(c.in, func(t *testing.T) {
			got, err := ParseEdit(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("ParseEdit(%q) = %+v, want %+v", c.in, got, c.want)
			}
			again, err := ParseEdit(got.String())
			if err != nil || again != got {
				t.Errorf("ParseEdit(%q) = %+v, %v, want what it was printed from: %+v", got.String(), again, err, got)
			}
		})
	}
}

func TestAnEditThatCannotBeReadIsAnErrorThatNamesThePart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, part, want string }{
		{"", "", "nothing is asked"},
		{"shrink vm00", "shrink", "is nothing that can be changed"},
		{"swap 0000:41:00.0", "swap", "has 1 words behind it and wants 2"},
		{"swap 0000:41:00.0 0000:06:00.0 0000:07:00.0", "0000:07:00.0", "is a word too many"},
		{"swap 0000:41:00.0 41:00.0", "0000:41:00.0", "is named twice"},
		{"swap 0000:41:00.9 0000:06:00.0", "0000:41:00.9", `function "9" is not 0 to 7`},
		{"move 0000:41:00.0 at 0", "at", `stands where "to" or "below" has to`},
		{"move 0000:41:00.0 to node0", "node0", "is not the number of a NUMA node"},
		{"move 0000:41:00.0 to -1", "-1", "is not the number of a NUMA node"},
		{"add vm02 now", "vm02", `stands where "node" has to`},
		{"add node VM_02", "VM_02", "is not a name of a lab node"},
		{"add node vm02 like", "like", "has no name of a lab node behind it"},
		{"add node vm02 as vm00", "as", `stands where "like" has to`},
		{"remove node vm01 vm02", "vm02", "is a word too many"},
		{"reserve 0", "0", "is not a number of cores from 1"},
		{"reserve 08", "08", "is not a number of cores from 1"},
		{"cpus vm00 many", "many", "is not a number of virtual CPUs"},
		{"memory vm00 64", "64", "add a unit"},
		{"memory vm00 1MiB", "1MiB", "is not whole MiB from 256MiB"},
		{"workload gaming", "gaming", "is not a workload; workloads: rdma-latency"},
		{"smt vm00", "vm00", "is not on, off or auto"},
		{"hugepages 4KiB", "4KiB", "is not a size of pages"},
	} {
		t.Run(c.in, func(t *testing.T) {
			_, err := ParseEdit(c.in)
			var e *EditError
			if !errors.As(err, &e) {
				t.Fatalf("got error %v, want an *EditError", err)
			}
			if e.Part != c.part || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got part %q in %q, want part %q and %q", e.Part, err, c.part, c.want)
			}
			if c.in != "" && !strings.Contains(err.Error(), c.in) {
				t.Errorf("error %q does not repeat the edit", err)
			}
		})
	}
}

func FuzzParseEditPrintsWhatItReads(f *testing.F) {
	for _, s := range []string{
		"swap 0000:41:00.0 0000:06:00.0", "swap NIC0 GPU3", "move a to 0", "move a below 0000:00:03.1", "without x",
		"without tenants",
		"add node vm02 like vm00", "remove node vm01", "reserve 8", "cpus vm00 auto", "cpus 3", "memory vm00 64GiB",
		"workload mixed", "smt off vm00",
		"guest-numa on", "hugepages 1GiB", "hugepages", "swap \x00 \xff", "add node - like -",
		"memory 99999999999999999999TiB", "without swap",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEdit(s)
		if err != nil {
			if !strings.Contains(err.Error(), "what-if") {
				t.Errorf("error %q does not say what it is about", err)
			}
			return
		}
		again, err := ParseEdit(e.String())
		if err != nil || again != e {
			t.Errorf("ParseEdit(%q) = %+v; printed and read again it is %+v, %v", s, e, again, err)
		}
	})
}
