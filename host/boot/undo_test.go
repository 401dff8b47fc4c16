package boot

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
)

func (m *machine) undo() (left []string) {
	m.t.Helper()
	err := m.withJournal(func(j *change.Journal) error {
		results, err := change.Rollback(context.Background(), m.System, j, nil)
		for _, r := range results {
			for _, c := range r.Changed {
				left = append(left, c.String())
			}
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := os.Stat(m.journal); err == nil {
		m.t.Fatal("there is a journal after the rollback")
	}
	return left
}

func TestARollbackSaysWhichArgumentsOfOthersItLeaves(t *testing.T) {
	t.Parallel()
	const ours, theirs = "isolcpus=managed_irq,domain,2-29", "isolcpus=2-3"
	edit := func(m *machine, path, from, to string) {
		text := m.text(path)
		if !strings.Contains(text, from) {
			m.t.Fatalf("%s has no %s:\n%s", path, from, text)
		}
		m.write(path, strings.ReplaceAll(text, from, to))
	}
	ofDebian := func(t testing.TB) *machine { return debian(t, debianDefaults) }
	ofSUSE := func(t testing.TB) *machine { return suse(t, debianDefaults) }
	for _, c := range []struct {
		name    string
		machine func(testing.TB) *machine
		byHand  func(*machine)
		want    string
		stays   []string
	}{
		{"a drop-in of GRUB", ofDebian, func(m *machine) {
			edit(m, grubDropIn, ours, theirs)
		}, grubDropIn + `: found ["GRUB_CMDLINE_LINUX=`, []string{grubDropIn, theirs, ours}},
		{"a drop-in of GRUB and its menu", ofDebian,
			func(m *machine) {
				edit(m, grubDropIn, ours, theirs)
				m.regenerate("/boot/grub/grub.cfg")
			}, grubDropIn + `: found ["GRUB_CMDLINE_LINUX=`, []string{"/boot/grub/grub.cfg", theirs, ours}},
		{"a comment in the drop-in", ofDebian, func(m *machine) {
			edit(m, grubDropIn, "\n", "\n# Do not touch.\n")
		}, "", []string{"/boot/grub/grub.cfg", "quiet", "nohz_full"}},
		{"settings of GRUB", ofSUSE, func(m *machine) {
			edit(m, grubSettings, ours, theirs)
			m.regenerate("/boot/grub2/grub.cfg")
		}, "kernel arguments in " + grubSettings + ": found isolcpus=2-3, rackless had set iommu=pt",
			[]string{grubSettings, theirs, "nohz_full"}},
		{"a boot entry", fedora, func(m *machine) {
			for path := range m.tree() {
				if strings.HasPrefix(path, "/boot/loader/entries/") && strings.Contains(m.text(path), ours) {
					edit(m, path, ours, theirs)
				}
			}
		}, "kernel arguments in the boot entries: found isolcpus=2-3, rackless had set iommu=pt", nil},
		{"a deployment", func(t testing.TB) *machine { return coreOS(t, "ro quiet") }, func(m *machine) {
			edit(m, "/ostree/kargs", ours, theirs)
		}, "kernel arguments in the deployment: found isolcpus=2-3, rackless had set iommu=pt",
			[]string{"/ostree/kargs", theirs, "nohz_full"}},
		{"nothing", ofSUSE, func(*machine) {}, "",
			[]string{grubSettings, "quiet", "nohz_full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := c.machine(t)
			m.mustMake(change.Boot)
			c.byHand(m)
			left := m.undo()
			good := len(left) == 0
			if c.want != "" {
				good = len(left) == 1 && strings.HasPrefix(left[0], c.want)
			}
			if !good {
				t.Errorf("left %q, want %q", left, c.want)
			}
			if c.stays == nil {
				return
			}
			if text := m.text(c.stays[0]); !strings.Contains(text, c.stays[1]) || strings.Contains(text, c.stays[2]) {
				t.Errorf("%s has to have %s, and not %s:\n%s", c.stays[0], c.stays[1], c.stays[2], text)
			}
		})
	}
}
