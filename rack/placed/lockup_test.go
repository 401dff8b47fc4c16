package placed

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAConsoleTellsOfALockup(t *testing.T) {
	const boot = "[    1.0] Linux\n"
	const lockup = "[   38.493985] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [migration/0:17]\n"
	for name, tt := range map[string]struct {
		text   string
		behind int
		want   bool
	}{
		"a boot":               {boot, 0, false},
		"a lockup":             {boot + lockup, 0, true},
		"one before a restart": {lockup + boot, len(lockup), false},
		"one after a restart":  {lockup + boot + lockup, len(lockup), true},
		"another warning":      {boot + "[ 2.0] watchdog: BUG: workqueue lockup - pool\n", 0, false},
	} {
		path := filepath.Join(t.TempDir(), "console.log")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lockedUp(path, int64(tt.behind)); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if lockedUp(filepath.Join(t.TempDir(), "none"), 0) {
		t.Error("a console that is not there tells of a lockup")
	}
}

func TestAGuestIsOverdueByTheOthers(t *testing.T) {
	for _, tt := range []struct {
		waited, other time.Duration
		want          bool
	}{
		{7 * time.Minute, 0, false},
		{9 * time.Minute, 0, true},
		{2 * time.Minute, time.Minute, false},
		{3 * time.Minute, time.Minute, true},
		{7 * time.Minute, 5 * time.Minute, false},
	} {
		if got := overdue(tt.waited, tt.other); got != tt.want {
			t.Errorf("waited %v, another took %v: got %v", tt.waited, tt.other, got)
		}
	}
}
