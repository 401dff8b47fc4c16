package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/internal/atomicfile"
)

func TestTheResultOfATrialBootIsKnown(t *testing.T) {
	if ok, _ := OpensKVM(); !ok {
		if usable, reason, known := (Probe{}).Known(t.TempDir()); usable || !known || reason == "" {
			t.Errorf("without /dev/kvm: %v, %q, %v", usable, reason, known)
		}
		return
	}
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	all := []Probe{
		{BootID: "another", QEMU: "11.1.3", Image: "old", UID: os.Getuid(), Usable: true},
		{BootID: boot, QEMU: "11.1.3", Image: "bad", UID: os.Getuid(), Reason: "no progress"},
		{BootID: boot, QEMU: "11.1.3", Image: "good", UID: os.Getuid(), Usable: true},
	}
	if err := atomicfile.WriteJSON(filepath.Join(cache, probeFile), all); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		image         string
		usable, known bool
		reason        string
	}{
		{"good", true, true, ""}, {"bad", false, true, "no progress"},
		{"old", false, false, ""}, {"new", false, false, ""},
	} {
		usable, reason, known := Probe{QEMU: "11.1.3", Image: c.image}.Known(cache)
		if usable != c.usable || known != c.known || reason != c.reason {
			t.Errorf("image %s: %v, %q, %v", c.image, usable, reason, known)
		}
	}
}
