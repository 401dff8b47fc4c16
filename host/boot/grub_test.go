package boot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/cmdline"
)

func debian(t testing.TB, defaults string) *machine {
	m := newMachine(t, map[string]string{
		"/proc/cmdline":                "BOOT_IMAGE=/boot/vmlinuz-6.1.0-13-amd64 root=UUID=1-2 ro quiet\n",
		"/etc/default/grub":            defaults,
		"/boot/vmlinuz-6.1.0-13-amd64": "kernel", "/boot/initrd.img-6.1.0-13-amd64": "initrd",
		"/boot/vmlinuz-6.1.0-9-amd64": "kernel", "/boot/initrd.img-6.1.0-9-amd64": "initrd",
		"/boot/grub/grubenv": "# GRUB Environment Block\n" + strings.Repeat("#", 999),
		// Detection looks for this line.
		"/usr/sbin/grub-mkconfig": "#!/bin/sh\nfor x in ${sysconfdir}/default/grub.d/*.cfg ; do\n",
	})
	m.programs["grub-mkconfig"] = func(argv []string) (string, error) { return "", m.mkconfig(argv) }
	m.regenerate("/boot/grub/grub.cfg")
	return m
}

func suse(t testing.TB, defaults string) *machine {
	m := debian(t, defaults)
	for _, path := range []string{"/usr/sbin/grub-mkconfig", "/boot/grub/grub.cfg", "/boot/grub/grubenv",
		"/boot/grub"} {
		if err := os.Remove(m.Path(path)); err != nil {
			t.Fatal(err)
		}
	}
	m.write("/usr/sbin/grub2-mkconfig", "#!/bin/sh\n. /etc/default/grub\n")
	m.programs["grub2-mkconfig"] = m.programs["grub-mkconfig"]
	m.write("/boot/grub2/grubenv", "")
	m.regenerate("/boot/grub2/grub.cfg")
	return m
}

func (m *machine) regenerate(config string) {
	m.t.Helper()
	m.write(config, "")
	if err := m.mkconfig([]string{"grub-mkconfig", "-o", config}); err != nil {
		m.t.Fatal(err)
	}
}

// mkconfig writes to FILE.new first, as the real one does.
func (m *machine) mkconfig(argv []string) error {
	script := `set -e
. "$1/etc/default/grub"
for x in "$1"/etc/default/grub.d/*.cfg; do [ ! -e "$x" ] || [ "$2" = grub2-mkconfig ] || . "$x"; done
printf '%s|%s|%s' "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT" "${GRUB_DEFAULT-0}"`
	out, err := exec.Command("sh", "-c", script, "sh", m.Root, filepath.Base(argv[0])).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", argv[0], err)
	}
	set := strings.Split(string(out), "|")
	kernels, err := filepath.Glob(m.Path("/boot/vmlinuz-*"))
	if err != nil {
		return err
	}
	slices.Sort(kernels)
	var b strings.Builder
	fmt.Fprintf(&b, "set default=%q\nmenuentry_id_option=\"--id\"\n### BEGIN /etc/grub.d/10_linux ###\n",
		strings.Replace(set[2], "saved", "${saved_entry}", 1))
	entry := func(title, id, kernel, line string) {
		version := strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-")
		fmt.Fprintf(&b, "menuentry '%s' --class gnu-linux $menuentry_id_option '%s' {\n\techo\t'Loading Linux "+
			"...'\n\tlinux\t/boot/vmlinuz-%s root=UUID=1-2 ro %s\n\tinitrd\t/boot/initrd.img-%s\n}\n",
			title, id, version, line, version)
	}
	entry("Debian GNU/Linux", "gnulinux-simple-1-2", kernels[0], set[0]+" "+set[1])
	b.WriteString("submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-1-2' {\n")
	for _, k := range kernels {
		version := strings.TrimPrefix(filepath.Base(k), "vmlinuz-")
		entry("Debian, with Linux "+version, "gnulinux-"+version+"-advanced-1-2", k, set[0]+" "+set[1])
		entry("Debian, with Linux "+version+" (recovery mode)", "gnulinux-"+version+"-recovery-1-2", k,
			"single "+set[0])
	}
	b.WriteString("}\n### END /etc/grub.d/10_linux ###\n")
	out2 := m.Path(argv[2])
	if err := os.WriteFile(out2+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(out2, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Remove(out2 + ".new")
}

const debianDefaults = "# settings\nGRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet " +
	"splash\"\nGRUB_CMDLINE_LINUX='console=ttyS0 isolcpus=1'\n"

func TestGRUBIsCutOffAnywhere(t *testing.T) {
	t.Parallel()
	t.Run("a drop-in", func(t *testing.T) {
		t.Parallel()
		everyCut(t, func() *machine { return debian(t, debianDefaults) })
	})
	t.Run("one file of settings", func(t *testing.T) {
		t.Parallel()
		everyCut(t, func() *machine { return suse(t, debianDefaults) })
	})
	t.Run("in the middle of grub-mkconfig", func(t *testing.T) {
		t.Parallel()
		ref := debian(t, debianDefaults)
		before := ref.tree()
		ref.mustMake(change.Boot)
		for _, again := range []bool{true, false} {
			m := debian(t, debianDefaults)
			whole := m.programs["grub-mkconfig"]
			m.programs["grub-mkconfig"] = func(argv []string) (string, error) {
				m.write(argv[2], "half a menu {")
				m.write(argv[2]+".new", "half a")
				panic(powerCut{})
			}
			if !m.until(1000, func() { m.mustMake(change.Boot) }) {
				t.Fatal("it was not cut off")
			}
			m.programs["grub-mkconfig"] = whole
			if again {
				m.mustMake(change.Boot)
				m.wantTree("made again", ref.tree())
			}
			m.mustRollback()
			m.wantTree("rolled back", before)
		}
	})
}

func TestGRUBGetsTheArgumentsAndKeepsWhatTheUserHad(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB, string) *machine{"Debian": debian, "SUSE": suse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := make(t, debianDefaults)
			m.mustMake(change.Boot)
			config := "/boot/grub/grub.cfg"
			if name == "SUSE" {
				config = "/boot/grub2/grub.cfg"
				want := "# settings\nGRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet " +
					"splash\"\nGRUB_CMDLINE_LINUX='console=ttyS0 " + planText + "'\n"
				if diff := cmp.Diff(want, m.text("/etc/default/grub")); diff != "" {
					t.Errorf("settings (-want +got):\n%s", diff)
				}
			} else if m.text("/etc/default/grub") != debianDefaults {
				t.Error("the user's settings were changed")
			}
			menu, err := parseMenu(m.text(config))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := menu.entries[0].line, "root=UUID=1-2 ro console=ttyS0 "+planText+
				" quiet splash"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			info, err := os.Stat(m.Path(config))
			if err != nil || info.Mode() != 0o644 {
				t.Errorf("mode %v, %v; it was 0644", info.Mode(), err)
			}
		})
	}
}

func TestArgumentsThatAreThereAlreadyAreNothingToDo(t *testing.T) {
	t.Parallel()
	m := debian(t, `GRUB_CMDLINE_LINUX_DEFAULT="quiet `+planText+`"`)
	before := m.tree()
	m.mustMake(change.Boot) // not yet in force
	m.write("/proc/cmdline", "root=UUID=1-2 ro quiet "+planText+"\n")
	before["/proc/cmdline"] = m.tree()["/proc/cmdline"]
	m.mustMake(change.InPlace)
	m.wantTree("nothing to do", before)
	for _, call := range m.ran {
		t.Errorf("%s was run", call)
	}
}

func TestOtherArgumentsTakeThePlaceOfThoseOfThePlanBefore(t *testing.T) {
	t.Parallel()
	m := suse(t, debianDefaults)
	before := m.tree()
	m.mustMake(change.Boot)
	steps, err := Steps(m.System, []string{"iommu=pt"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = m.withJournal(func(j *change.Journal) error {
		_, err := change.Make(t.Context(), m.System, j, steps, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.text("/etc/default/grub"), strings.Replace(debianDefaults, "isolcpus=1", "isolcpus=1 iommu=pt",
		1); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	m.mustRollback()
	m.wantTree("rolled back", before)
}

func (m *machine) refused(want string) {
	m.t.Helper()
	before := m.tree()
	m.mustFail(want)
	m.wantTree("refused", before)
	if _, err := os.Stat(m.journal); err == nil {
		m.t.Error("something was begun")
	}
}

func TestABadMenuNeverGetsToGRUB(t *testing.T) {
	t.Parallel()
	edit := func(f func(string) string) func(*machine) {
		return func(m *machine) {
			real := m.programs["grub-mkconfig"]
			m.programs["grub-mkconfig"] = func(argv []string) (string, error) {
				if _, err := real(argv); err != nil {
					return "", err
				}
				m.write(argv[2], f(m.text(argv[2])))
				return "", nil
			}
		}
	}
	replace := func(old, new string) func(*machine) {
		return edit(func(s string) string {
			if !strings.Contains(s, old) {
				t.Errorf("no %q in %s", old, s)
			}
			return strings.ReplaceAll(s, old, new)
		})
	}
	tests := []struct {
		name string
		bad  func(*machine)
		want string
	}{
		{"the program fails", func(m *machine) {
			m.programs["grub-mkconfig"] = func(argv []string) (string, error) {
				m.write(argv[2]+".new", "half")
				return "", fmt.Errorf("%s: exit status 1: syntax errors are detected", argv[0])
			}
		}, "syntax errors are detected"},
		{"it is empty", edit(func(string) string { return "" }), "it has 0 entries, and the old one 5: without"},
		{"an entry is gone", func(m *machine) { _ = os.Remove(m.Path("/boot/vmlinuz-6.1.0-9-amd64")) },
			`it has 3 entries, and the old one 5: without "Debian, with Linux 6.1.0-9-amd64" ` +
				`(gnulinux-6.1.0-9-amd64-advanced-1-2), "Debian, with Linux 6.1.0-9-amd64 (recovery mode)"`},
		{"it is cut off", edit(func(s string) string { return s[:len(s)-60] }), `a "{" without its "}"`},
		{"the kernel is not there", replace("/boot/vmlinuz-6.1.0-13", "/boot/vmlinuz-7"),
			"starts /boot/vmlinuz-7-amd64, which is not there"},
		{"the initrd is not there", replace("/boot/initrd.img-6.1.0-13", "/boot/initrd.img-7"),
			"starts /boot/initrd.img-7-amd64, which is not there"},
		{"no initrd", replace("\tinitrd\t", "\techo\t"), "has no initrd"},
		{"no Linux", replace("\tlinux\t", "\techo\t"), "no entry starts Linux"},
		{"without the arguments", replace("iommu=pt ", ""), "does not have the arguments alone, but: root="},
		{"a later file adds another value", func(m *machine) {
			m.write("/etc/default/grub.d/zz.cfg", `GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX isolcpus=7"`)
		}, "does not have the arguments alone"},
		{"too long in one entry", replace("single ", "single x="+strings.Repeat("1", 2000)+" "),
			"the kernel reads 2047"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := debian(t, debianDefaults)
			tt.bad(m)
			before := m.tree()
			m.mustFail(tt.want)
			m.wantTree("after the failure", before)
			m.mustRollback()
			m.wantTree("after the rollback", before)
		})
	}
}

func TestGRUBIsRefusedWhereItCannotBeDoneSafely(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*machine)
		want   string
	}{
		{"a command line that is too long", func(m *machine) {
			m.write("/etc/default/grub", `GRUB_CMDLINE_LINUX="x=`+strings.Repeat("1", 1930)+`"`)
			m.regenerate("/boot/grub2/grub.cfg")
		}, "and the kernel reads 2047: take something off first"},
		{"settings that are a program", func(m *machine) {
			m.write("/etc/default/grub", "\nGRUB_CMDLINE_LINUX=\"$(cat /x)\"\n")
		},
			`/etc/default/grub: line 2: GRUB_CMDLINE_LINUX is set in a way that only a shell can read: add "iommu=pt`},
		{"settings that add", func(m *machine) {
			m.write("/etc/default/grub", `GRUB_CMDLINE_LINUX+=" quiet"`)
		}, "line 1: GRUB_CMDLINE_LINUX is set in a way"},
		{"nothing but Windows", func(m *machine) {
			m.write("/boot/grub2/grub.cfg", "menuentry 'Windows' { chainloader /x }\nmenuentry 'Firmware' {\n "+
				"fwsetup\n}")
		}, "has no entry that starts Linux"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := suse(t, debianDefaults)
			tt.change(m)
			m.refused(tt.want)
		})
	}
}

func TestRollbackAfterAKernelUpdateKeepsTheNewKernel(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB, string) *machine{"/boot/grub/grub.cfg": debian,
		"/boot/grub2/grub.cfg": suse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := make(t, debianDefaults)
			update := func(m *machine) {
				m.write("/boot/vmlinuz-6.1.0-14-amd64", "kernel")
				m.write("/boot/initrd.img-6.1.0-14-amd64", "initrd")
				_ = os.Remove(m.Path("/boot/vmlinuz-6.1.0-9-amd64"))
				_ = os.Remove(m.Path("/boot/initrd.img-6.1.0-9-amd64"))
				m.regenerate(name)
			}
			m.mustMake(change.Boot)
			update(m)
			m.mustMake(change.Boot)
			m.mustRollback()
			never := make(t, debianDefaults)
			update(never)
			m.wantTree("updated and rolled back", never.tree())
		})
	}
}

func TestRollbackKeepsSettingsThatTheUserHasChangedSince(t *testing.T) {
	t.Parallel()
	m := suse(t, debianDefaults)
	m.mustMake(change.Boot)
	m.write("/etc/default/grub", strings.Replace(m.text("/etc/default/grub"), "quiet", "loud", 1)+"GRUB_TIMEOUT=1\n")
	m.regenerate("/boot/grub2/grub.cfg")
	m.mustRollback()
	never := suse(t, strings.Replace(debianDefaults, "quiet", "loud", 1)+"GRUB_TIMEOUT=1\n")
	m.wantTree("rolled back", never.tree())
}

func TestARollbackThatCannotMakeAMenuLeavesTheOneThatIsThere(t *testing.T) {
	t.Parallel()
	m := debian(t, debianDefaults)
	m.mustMake(change.Boot)
	m.write("/boot/grub/grub.cfg", m.text("/boot/grub/grub.cfg")+
		"menuentry 'mine' { linux /boot/vmlinuz-6.1.0-13-amd64 }\n")
	before := m.text("/boot/grub/grub.cfg")
	if err := m.rollback(); err == nil || !strings.Contains(err.Error(), `without "mine"`) ||
		!strings.Contains(err.Error(), "remains") {
		t.Fatal(err)
	}
	if got := m.text("/boot/grub/grub.cfg"); got != before {
		t.Errorf("it is\n%s", got)
	}
}

func TestADropInOfOthersArgumentsIsNotInPlace(t *testing.T) {
	t.Parallel()
	m := debian(t, `GRUB_CMDLINE_LINUX="`+planText+`"`)
	m.mustMake(change.Boot)
	m.write(grubDropIn, "GRUB_CMDLINE_LINUX=\n") // the next update-grub would drop the arguments from grub.cfg
	results, err := change.Survey(t.Context(), m.System, m.steps())
	if err != nil || results[0].Status != change.Pending {
		t.Errorf("%+v, %v", results, err)
	}
}

func TestFilesOfGRUBAreFoundWhereverItSeesThem(t *testing.T) {
	t.Parallel()
	m := newMachine(t, map[string]string{"/boot/vmlinuz-1": "", "/boot/dir/initrd": "", "/vmlinuz.old": ""})
	for file, want := range map[string]bool{
		"/boot/vmlinuz-1": true, "/vmlinuz-1": true, "(hd0,gpt2)/vmlinuz-1": true, "/@/boot/vmlinuz-1": true,
		"/root/@rootfs/boot/vmlinuz-1": true, "/dir/initrd": true, "/vmlinuz.old": true,
		"/vmlinuz-2": false, "/@/boot/vmlinuz-2": false, "": false, "/": false, "(hd0": false,
		"/../boot/vmlinuz-2": false,
	} {
		if got := bootFile(m.System, file); got != want {
			t.Errorf("%q: %v", file, got)
		}
	}
	m = debian(t, debianDefaults)
	m.write("/boot/grub/grub.cfg", strings.ReplaceAll(m.text("/boot/grub/grub.cfg"), "/boot/", "$odd/"))
	for _, k := range []string{"13", "9"} {
		for _, f := range []string{"vmlinuz", "initrd.img"} {
			if err := os.Rename(m.Path("/boot/"+f+"-6.1.0-"+k+"-amd64"), m.Path("/"+f+k)); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.programs["grub-mkconfig"] = func(argv []string) (string, error) {
		m.write(argv[2], strings.Replace(m.text("/boot/grub/grub.cfg"), "ro console=ttyS0 isolcpus=1",
			"ro console=ttyS0 "+planText, 1))
		return "", nil
	}
	m.mustMake(change.Boot)
}

func TestTheDefaultEntryCounts(t *testing.T) {
	t.Parallel()
	m := debian(t, strings.Replace(debianDefaults, "DEFAULT=0", "DEFAULT=saved", 1))
	m.write("/boot/grub/grubenv", "# GRUB Environment "+
		"Block\nsaved_entry=gnulinux-advanced-1-2>gnulinux-6.1.0-9-amd64-advanced-1-2\n####")
	m.mustMake(change.Boot)
	if got := m.text("/boot/grub/grubenv"); !strings.HasSuffix(got, "-1-2\n####") {
		t.Errorf("GRUB's environment is %q", got)
	}
	menu, err := parseMenu(m.text("/boot/grub/grub.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	if got := menu.ours(savedEntry(m.text("/boot/grub/grubenv"))); got.kernel != "/boot/vmlinuz-6.1.0-9-amd64" {
		t.Errorf("the default entry is %v", got)
	}
}

func TestGRUBOfRandomSettingsIsSetAndSetBack(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{"ro", "quiet", "isolcpus=1", "iommu=pt", "hugepagesz=2M", "hugepages=4",
		"hugepagesz=1G", "nohz_full=2-29", "console=ttyS0,115200n8", "é"})
	rapid.Check(t, func(rt *rapid.T) {
		value := func(name string) string {
			return strings.Join(rapid.SliceOfN(word, 0, 6).Draw(rt, name),
				rapid.SampledFrom([]string{" ", "  "}).Draw(rt, "space"))
		}
		text := ""
		for _, name := range rapid.Permutation([]string{grubAlways, grubDefault, "GRUB_TIMEOUT"}).Draw(rt,
			"order")[:rapid.IntRange(0, 3).Draw(rt, "lines")] {
			quote := rapid.SampledFrom([]string{`"`, "'"}).Draw(rt, "quote")
			text += name + "=" + quote + value(name) + quote + rapid.SampledFrom([]string{"\n", " # a comment\n",
				"  \n\n"}).Draw(rt, "end")
		}
		edited, err := editGrubDefaults(text, planArgs)
		if err != nil {
			rt.Fatal(err)
		}
		if again, err := editGrubDefaults(edited, planArgs); err != nil || again != edited {
			rt.Fatalf("%v: again it is %q, not %q", err, again, edited)
		}
		if undone, err := undoGrubDefaults(edited, text, planArgs); err != nil || undone != text {
			rt.Fatalf("%v: undone it is %q, not %q", err, undone, text)
		}
		d, err := parseGrubDefaults(edited)
		if err != nil {
			rt.Fatal(err)
		}
		if line := strings.Join(d.values[:], " "); !cmdline.Has(line, planArgs) {
			rt.Fatalf("%q does not have the arguments", line)
		}
	})
}
