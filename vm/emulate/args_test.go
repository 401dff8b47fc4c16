package emulate

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/golden"
)

func TestArgumentsOfProfiles(t *testing.T) {
	profiles := Builtin()
	for _, text := range []string{good, withVRAM} {
		p, err := ParseProfile("small.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		profiles = append(profiles, p)
	}
	for _, p := range profiles {
		t.Run(p.Name, func(t *testing.T) {
			m := machine{
				name: "a", dir: "/run/a,b", profile: p.Scale(4), accel: "tcg", boot: Boot{Disk: "/cache/image.qcow2"},
				disk: "/run/a,b/disk.qcow2", tools: "/cache/tools.ext4",
			}
			if p.comesLate() {
				m.adapters = m.dir
			}
			if p.hasConnectX() {
				m.ram = ram{open: true}
			}
			var b strings.Builder
			for i, a := range m.args() {
				if strings.HasPrefix(a, "-") && i > 0 {
					b.WriteString("\n")
				} else if i > 0 {
					b.WriteString(" ")
				}
				b.WriteString(a)
			}
			got := b.String() + "\n"
			golden.Check(t, filepath.Join("testdata", "args", p.Name+".txt"), got)
		})
	}
}

// withVRAM has GPUs with memory below a root port, and behind a switch beside a card of Intel's.
var withVRAM = strings.NewReplacer("name: small", "name: small-vram", "disk: 8GiB", "disk: 8GiB\nscreen: true",
	"audio: true}", "audio: true, model: h20, memory: 64MiB}", `"19:00.0"}`, `"19:00.0", model: generic}`).Replace(good)

func TestTemplatesHaveRoomForAdaptersAndGPUs(t *testing.T) {
	vram, err := ParseProfile("small.yaml", []byte(withVRAM))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(Builtin(), vram) {
		args := strings.Join((machine{profile: p, accel: "tcg"}).args(), " ")
		if n := strings.Count(args, "vfio-user-pci"); n != 0 {
			t.Errorf("%s: the template has %d adapters and GPUs", p.Name, n)
		}
		late, switches := 0, p.lateSwitches()
		for _, n := range p.NICs {
			if n.Model != "" {
				late++
			}
			behind := n.Model != "" && n.Behind != nil
			if behind && !slices.Contains(switches, n.Behind.String()) {
				t.Errorf("%s: the switch %v is not found again", p.Name, n.Behind)
			}
		}
		for _, g := range p.GPUs {
			if g.hasVRAM() {
				late++
			}
			if behind := g.hasVRAM() && g.Behind != nil; behind && !slices.Contains(switches, g.Behind.String()) {
				t.Errorf("%s: the switch %v is not found again", p.Name, g.Behind)
			}
		}
		if got := strings.Count(args, latePort); got != late {
			t.Errorf("%s: %d ports are for what comes late, want %d", p.Name, got, late)
		}
	}
}

func TestMemoryOfATemplateIsSharedAndOfACloneIsNot(t *testing.T) {
	p := Builtin()[0]
	for share, want := range map[bool]string{
		true:  "memory-backend-file,id=ram0,size=3221225472,mem-path=/t,,t/ram0,share=on",
		false: "memory-backend-file,id=ram0,size=3221225472,mem-path=/t,,t/ram0,share=off",
	} {
		if a := (machine{profile: p, ram: ram{dir: "/t,t", share: share}}).args(); !slices.Contains(a, want) {
			t.Errorf("no argument %s in %q", want, a)
		}
	}
}

func TestTemplateKeyFollowsWhatTheGuestSees(t *testing.T) {
	p := Builtin()[1]
	base := machine{name: "a", dir: "/run/a", profile: p, accel: "tcg", boot: Boot{Key: "k", Disk: "/a"},
		disk: "/run/a/disk", tools: "/t1"}
	key := templateKey(base)
	same := map[string]func(*machine){
		"name":         func(m *machine) { m.name = "b" },
		"files":        func(m *machine) { m.disk, m.dir, m.boot.Disk = "/run/b/disk", "/run/b", "/b" },
		"tools":        func(m *machine) { m.tools = "/t2" },
		"memory files": func(m *machine) { m.ram = ram{dir: "/x", share: true} },
	}
	for what, change := range same {
		m := base
		change(&m)
		if templateKey(m) != key {
			t.Errorf("%s: another template, want the same", what)
		}
	}
	other := map[string]func(*machine){
		"scale":  func(m *machine) { m.profile = p.Scale(2) },
		"image":  func(m *machine) { m.boot.Key = "l" },
		"QEMU":   func(m *machine) { m.qemu.Version = "10.0.3" },
		"append": func(m *machine) { m.boot.Append = "quiet" },
		"memory": func(m *machine) {
			q, err := p.WithMemory(4 << 30)
			if err != nil {
				t.Fatal(err)
			}
			m.profile = q
		},
	}
	for what, change := range other {
		m := base
		change(&m)
		if templateKey(m) == key {
			t.Errorf("%s: the same template, want another", what)
		}
	}
}
