package tune

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/plan"
)

func TestTooFewPagesSayHowManyAreMissingWhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  MissingError
		want string
	}{
		{"where kernel arguments set them aside, a reboot helps", MissingError{1, gib, 3, 16, true},
			"NUMA node 1 has memory for 3 of 16 pages of 1 GiB, 13 are missing: the rest of it is in use or in " +
				"pieces; the kernel arguments of the plan set them aside at boot: start the machine again, and " +
				"go on then"},
		{"where they do not, memory has to come free", MissingError{0, 2 << 20, 0, 5, false},
			"NUMA node 0 has memory for 0 of 5 pages of 2 MiB, 5 are missing: the rest of it is in use or in pieces; " +
				"stop what uses NUMA node 0 and try again, or let the kernel arguments of the plan set them aside at " +
				"boot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPagesAreNeverTakenAwayAndGoBackToWhatWasThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		had := rapid.Uint64Range(0, 40).Draw(t, "had")
		want := rapid.Uint64Range(1, 40).Draw(t, "want")
		p := &Pool{NUMANode: 0, PageBytes: 2 << 20, Pages: want}
		s := &change.System{Root: dir}
		write := func(name, text string) {
			if err := os.MkdirAll(s.Path(p.dir()), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.Path(p.dir()+"/"+name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("nr_hugepages", fmt.Sprint(had)+"\n")
		before, err := p.Read(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Do(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		now, err := p.count(s)
		if err != nil || now != max(had, want) {
			t.Fatalf("%d pages before, %d wanted: %d, %v", had, want, now, err)
		}
		used := rapid.Uint64Range(0, now).Draw(t, "used")
		write("free_hugepages", fmt.Sprint(now-used))
		err = p.Restore(t.Context(), s, before)
		after, _ := p.Read(t.Context(), s)
		switch {
		case used > had && (err == nil || after != change.State(fmt.Sprint(now))):
			t.Fatalf("%d of %d pages are in use, %d were there: %v, %s", used, now, had, err, after)
		case used <= had && (err != nil || after != before):
			t.Fatalf("%d of %d pages are in use, %d were there: %v, %s", used, now, had, err, after)
		}
	})
}

func TestPagesInUseAreNotTakenBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.pool(0, 1048576, 4, 1)
	err := (&Pool{NUMANode: 0, PageBytes: gib, Pages: 4}).Restore(t.Context(), m.system(), "2")
	want := "NUMA node 0 has 4 pages of 1 GiB, 2 before, and 3 are in use: stop the machines that use them, and " +
		"try again"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestWhetherPagesCanBeHadBeforeAReboot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(*machine)
		boot bool
		want bool
	}{
		{"room for all", func(*machine) {}, true, true},
		{"no room, and the kernel arguments set them aside", func(m *machine) {
			m.write("sys/devices/system/node/node0/meminfo", meminfoText(0, 16*gib, 3*gib))
		}, true, false},
		{"no room, and there is no other way", func(m *machine) {
			m.write("sys/devices/system/node/node0/meminfo", meminfoText(0, 16*gib, 3*gib))
		}, false, true},
		{"no room, and most are there", func(m *machine) {
			m.write("sys/devices/system/node/node0/meminfo", meminfoText(0, 16*gib, 3*gib))
			m.pool(0, 1048576, 2, 2)
		}, true, true},
		{"no pool of that size before the boot", func(m *machine) {
			m.remove("sys/devices/system/node/node0/hugepages/hugepages-1048576kB")
		}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			tt.set(m)
			got, err := (&Pool{NUMANode: 0, PageBytes: gib, Pages: 4, Boot: tt.boot}).ready(t.Context(), m.system())
			if err != nil || got != tt.want {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestPagesThatABootWithThePlansArgumentsBroughtAreTakenBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		line          string // of the running kernel
		pages         int    // of 1 GiB; the plan wants 4
		had           uint64 // when the plan was made
		after         string // of a rollback
		adopted, boot bool
	}{
		{"the arguments are in force", "ro hugepagesz=1G hugepages=0:4,1:4", 4, 0, "0", true, true},
		{"some were there before", "ro hugepagesz=1G hugepages=0:4,1:4", 4, 1, "1", true, true},
		{"all were there before", "ro hugepagesz=1G hugepages=0:4,1:4", 4, 4, "4", false, true},
		{"somebody has set aside more", "ro hugepagesz=1G hugepages=0:4,1:4", 5, 0, "5", false, true},
		{"without the arguments, somebody else has set them aside", "ro", 4, 0, "4", false, true},
		{"the plan has no arguments", "ro hugepagesz=1G hugepages=0:4,1:4", 4, 0, "4", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const pool = "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB"
			p := pair(t, pairLab)
			p.host.NUMANodes[0].Hugepages[1].Total = tt.had
			steps := p.steps(t, Options{NoReboot: !tt.boot})
			booted := func() *machine {
				m := newMachine(t)
				m.write("proc/cmdline", tt.line+"\n")
				m.pool(0, 1048576, tt.pages, tt.pages)
				return m
			}
			t.Run("prepare was cut off before it came to them", func(t *testing.T) {
				m := booted()
				j, err := change.Open(m.journal, allKinds())
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(change.Adopt(t.Context(), m.system(), j, steps), j.Close()); err != nil {
					t.Fatal(err)
				}
				if err := m.rollback(); err != nil {
					t.Fatal(err)
				}
				if after := strings.TrimSpace(m.read(pool[1:] + "/nr_hugepages")); after != tt.after {
					t.Errorf("after a rollback there are %s pages, want %s", after, tt.after)
				}
			})
			m := booted()
			results, err := m.prepare(steps)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Subject == pool && r.Status != change.InPlace {
					t.Errorf("%s, want %s", r.Status, change.InPlace)
				}
			}
			entries, err := change.ReadJournal(m.journal, allKinds())
			if err != nil {
				t.Fatal(err)
			}
			adopted := false
			for _, e := range entries {
				adopted = adopted || e.Op.Subject() == pool
			}
			if err := m.rollback(); err != nil {
				t.Fatal(err)
			}
			if after := strings.TrimSpace(m.read(pool[1:] + "/nr_hugepages")); adopted != tt.adopted ||
				after != tt.after {
				t.Errorf("in the journal: %v, want %v; after a rollback there are %s pages, want %s", adopted,
					tt.adopted, after, tt.after)
			}
		})
	}
}

func TestPagesThatWouldPushOutWhatIsInUseAreRefusedWhereNoBootMakesThem(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("sys/devices/system/node/node1/meminfo", meminfoText(1, 16*gib, 3*gib))
	m.pool(1, 1048576, 1, 1)
	_, err := m.prepare(pair(t, pairLab).steps(t, Options{NoReboot: true}))
	var refused *change.RefusedError
	var missing *MissingError
	if !errors.As(err, &refused) || !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff(&MissingError{NUMANode: 1, PageBytes: gib, Have: 3, Want: 4}, missing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPlanWaitsForItsPagesAndTheRestIsMade(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("sys/devices/system/node/node1/meminfo", meminfoText(1, 16*gib, gib))
	results, err := m.prepare(pair(t, pairLab).steps(t, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		want := change.Made
		if r.Subject == "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB" {
			want = change.Waiting
		}
		if r.Status != want {
			t.Errorf("%s: %s, want %s", r.What, r.Status, want)
		}
	}
}

func TestHugepagesThatWouldStarveTheHostAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(*machine, *plan.Plan)
		want string
	}{
		{"as planned", func(*machine, *plan.Plan) {}, ""},
		{"all but the least of one node", func(m *machine, p *plan.Plan) { p.Hugepages[0].Count = 15 }, ""},
		{"all of a node", func(m *machine, p *plan.Plan) { p.Hugepages[0].Count = 16 },
			"NUMA node 0 has 16384 MiB, and hugepages would take 16384 MiB of them; 128 MiB have to be left: give " +
				"the lab nodes less memory, or have the host keep more of it (host.reserve.numa_nodes in the " +
				"lab file)"},
		{"all of a node, with those that tenants hold", func(m *machine, p *plan.Plan) {
			p.Hugepages[0].Held = 12
		}, "NUMA node 0 has 16384 MiB"},
		{"all of a node, with pages of another size that are there", func(m *machine, p *plan.Plan) {
			m.pool(0, 2048, 6144, 0)
		}, "NUMA node 0 has 16384 MiB"},
		{"all of the host but what one node keeps", func(m *machine, p *plan.Plan) {
			m.write("sys/devices/system/node/node0/meminfo", meminfoText(0, 4*gib+200<<20, gib))
			m.write("sys/devices/system/node/node1/meminfo", meminfoText(1, 4*gib+200<<20, gib))
		}, ""},
		{"and of a host a little smaller", func(m *machine, p *plan.Plan) {
			m.write("sys/devices/system/node/node0/meminfo", meminfoText(0, 4*gib+180<<20, gib))
			m.write("sys/devices/system/node/node1/meminfo", meminfoText(1, 4*gib+180<<20, gib))
		}, "the host has 8552 MiB, and hugepages would take 8192 MiB of them; with 2 virtual machines 384 MiB have " +
			"to be left: give the lab nodes less memory, or have the host keep more of it (host.reserve.memory in " +
			"the lab file)"},
		{"a node that is not there", func(m *machine, p *plan.Plan) {
			p.Hugepages[0].NUMANode = 7
		}, "there is no NUMA node 7: the plan is for another host"},
		{"a node that does not tell its memory", func(m *machine, p *plan.Plan) {
			m.remove("sys/devices/system/node/node1/meminfo")
		}, "how much memory NUMA node 1 has is not known"},
		{"more than any host has", func(m *machine, p *plan.Plan) {
			p.Hugepages[0].Count = 1 << 40
		}, "are more than any host has"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, p := newMachine(t), pair(t, pairLab)
			tt.set(m, p.plan)
			err := GuardPages(m.system(), p.plan)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestAPoolThatTheKernelDoesNotHaveIsRefusedWhereNoBootMakesIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.remove("sys/devices/system/node/node0/hugepages/hugepages-1048576kB")
	before := m.snapshot()
	_, err := m.prepare(pair(t, pairLab).steps(t, Options{NoReboot: true}))
	var refused *change.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(),
		"NUMA node 0 has no pool of pages of 1 GiB: boot with hugepagesz=") {
		t.Errorf("got %v", err)
	}
	if len(m.snapshot()) != len(before) {
		t.Error("something was changed")
	}
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add([]byte(meminfoText(0, 16*gib, gib)))
	f.Add([]byte("Node 0 MemTotal: 99999999999999999999 kB\n"))
	f.Add([]byte("Node 0 MemTotal: -1 kB\nNode 0 MemFree: 0x10 kB"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMeminfo("meminfo", data)
		if err == nil && (m.total%1024 != 0 || m.available%1024 != 0) {
			t.Errorf("%d and %d bytes are no whole KiB", m.total, m.available)
		}
	})
}
