package tune

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsOfHugepagesAreToldApartBySize(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// The first three lines as kernel 6.1 writes them, then an odd one.
	m.write("proc/self/mountinfo", `22 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw
33 25 0:29 / /dev/hugepages rw,relatime shared:15 - hugetlbfs hugetlbfs rw,pagesize=2M
90 25 0:51 / /dev/hugepages1G rw,relatime shared:55 master:3 - hugetlbfs hugetlbfs rw,seclabel,mode=755,pagesize=1024M
91 25 0:52 / /mnt/huge rw,relatime - hugetlbfs none rw,pagesize=1G
92 25 0:53 / /mnt/odd rw - hugetlbfs none rw,pagesize=xM
`)
	for size, want := range map[uint64][]string{2 << 20: {"/dev/hugepages"}, gib: {"/dev/hugepages1G", "/mnt/huge"},
		64 << 10: nil} {
		got, err := hugeMounts(m.system(), size)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%d: %v (-want +got):\n%s", size, err, diff)
		}
	}
	m.write("proc/self/mountinfo", "93 25 0:53 / /mnt/odd rw - hugetlbfs\n")
	if got, err := hugeMounts(m.system(), gib); err == nil {
		t.Errorf("a damaged table says %q", got)
	}
}

func TestAMountElsewhereIsEnough(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("proc/self/mountinfo", "91 25 0:52 / /mnt/huge rw,relatime - hugetlbfs none rw,pagesize=1024M\n")
	op := &Mount{Path: "/dev/hugepages1G", PageBytes: gib}
	state, err := op.Read(t.Context(), m.system())
	if err != nil || !op.Done(state) {
		t.Errorf("%s, %v", state, err)
	}
}

func TestAMountThatWasThereStaysAfterARollback(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	op := &Mount{Path: "/dev/hugepages1G", PageBytes: gib}
	if err := op.Do(t.Context(), m.system()); err != nil {
		t.Fatal(err)
	}
	state, err := op.Read(t.Context(), m.system())
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Restore(t.Context(), m.system(), state); err != nil {
		t.Fatal(err)
	}
	if now, err := op.Read(t.Context(), m.system()); err != nil || now != state {
		t.Errorf("it was %s and is %s, %v", state, now, err)
	}
}

func TestAMountInUseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	op := &Mount{Path: "/dev/hugepages1G", PageBytes: gib}
	if err := op.Do(t.Context(), m.system()); err != nil {
		t.Fatal(err)
	}
	m.fail = func(argv []string) error {
		if argv[0] == "umount" {
			return errors.New("umount: /dev/hugepages1G: target is busy")
		}
		return nil
	}
	if err := op.Restore(t.Context(), m.system(), "{}"); err == nil || !strings.Contains(err.Error(),
		"target is busy; stop the machines that have pages from it, and try again") {
		t.Errorf("got %v", err)
	}
}
