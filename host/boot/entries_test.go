package boot

import (
	"fmt"
	"maps"
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

// The form is kernel-install's.
const (
	machineID   = "8c5e4f0a6a0b4e0f9a3b1c2d3e4f5a6b"
	fedoraEntry = "/boot/loader/entries/" + machineID + "-6.8.5-301.fc40.x86_64.conf"
	fedoraOld   = "/boot/loader/entries/" + machineID + "-6.8.4-300.fc40.x86_64.conf"
)

func bootEntry(version, options string) string {
	return "title Fedora Linux (" + version + ") 40\nversion " + version + "\nlinux /vmlinuz-" + version +
		"\ninitrd /initramfs-" + version + ".img $tuned_initrd\n" +
		"options " + options + "\ngrub_users $grub_users\ngrub_arg --unrestricted\n"
}

func fedora(t testing.TB) *machine {
	m := newMachine(t, map[string]string{
		"/proc/cmdline": "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.8.5-301.fc40.x86_64 root=UUID=1-2 ro rhgb quiet " +
			"isolcpus=1\n",
		"/etc/machine-id":     machineID + "\n",
		"/etc/kernel/cmdline": "root=UUID=1-2 ro isolcpus=1 rhgb quiet\n",
		"/boot/grub2/grub.cfg": "set default=\"${saved_entry}\"\ninsmod blscfg\nblscfg\nmenuentry 'UEFI Firmware " +
			"Settings' { fwsetup }\n",
		"/boot/grub2/grubenv": "# GRUB Environment Block\nsaved_entry=x\n" + strings.Repeat("#", 985),
		"/usr/sbin/grubby":    "#!/bin/bash\n",
		fedoraEntry: bootEntry("6.8.5-301.fc40.x86_64",
			"root=UUID=1-2 ro isolcpus=1 rhgb quiet $tuned_params"),
		fedoraOld: bootEntry("6.8.4-300.fc40.x86_64",
			"root=UUID=1-2 ro rhgb quiet hugepagesz=2M hugepages=4 $tuned_params"),
		"/boot/loader/random":    "x",
		fedoraEntry + ".rpmsave": "options ro\n",
	})
	m.programs["grubby"] = m.grubby
	return m
}

func (m *machine) grubby(argv []string) (string, error) {
	if !slices.Equal(argv[1:], []string{"--info=ALL"}) {
		return "", fmt.Errorf("%q", argv)
	}
	files, err := filepath.Glob(m.Path("/boot/loader/entries/*.conf"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "index=%d\nkernel=%q\nargs=\"%s\"\nroot=\"UUID=1-2\"\ntitle=%q\n", i,
			entryValue(string(text), "linux"), parseOptions(entryForm, string(text)).line(),
			entryValue(string(text), "title"))
	}
	return b.String(), nil
}

func systemdBoot(t testing.TB) *machine {
	m := newMachine(t, map[string]string{
		"/proc/cmdline":           "initrd=\\x root=UUID=1-2 ro\n",
		"/etc/machine-id":         machineID + "\n",
		"/efi/loader/loader.conf": "default *\n",
		"/efi/loader/entries/arch.conf": "# by hand\ntitle Arch Linux\nlinux /vmlinuz-linux\ninitrd " +
			"/initramfs-linux.img\noptions root=UUID=1-2\noptions\trw isolcpus=1 \n",
		"/efi/loader/entries/windows.conf": "title Windows\nefi /EFI/Microsoft/Boot/bootmgfw.efi\n",
		"/efi/loader/entries/other.conf": "title other\nmachine-id " +
			"11111111111111111111111111111111\nlinux /other\noptions ro\n",
		"/boot/loader/entries/plain.conf":           "title plain\nmachine-id " + machineID + "\nlinux /plain",
		"/boot/loader/entries/" + machineID + ".md": "no entry",
	})
	m.efi("LoaderInfo", "systemd-boot 254.5-1")
	return m
}

func TestBootEntriesAreCutOffAnywhere(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB) *machine{"Fedora": fedora, "systemd-boot": systemdBoot,
		"RHEL 8": rhel8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyCut(t, func() *machine { return make(t) })
		})
	}
}

func TestBootEntriesGetTheArguments(t *testing.T) {
	t.Parallel()
	m := fedora(t)
	m.mustMake(change.Boot)
	for path, want := range map[string]string{
		fedoraEntry: bootEntry("6.8.5-301.fc40.x86_64", "root=UUID=1-2 ro rhgb quiet $tuned_params "+
			planText),
		fedoraOld: bootEntry("6.8.4-300.fc40.x86_64",
			"root=UUID=1-2 ro rhgb quiet hugepagesz=2M hugepages=4 $tuned_params "+planText),
		kernelCmdline:            "root=UUID=1-2 ro rhgb quiet " + planText + "\n",
		fedoraEntry + ".rpmsave": "options ro\n",
	} {
		if diff := cmp.Diff(want, m.text(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	m = systemdBoot(t)
	before := m.tree()
	m.mustMake(change.Boot)
	want := maps.Clone(before)
	want["/efi/loader/entries/arch.conf"] = "-rw-r--r-- # by hand\ntitle Arch Linux\nlinux /vmlinuz-linux\ninitrd " +
		"/initramfs-linux.img\noptions root=UUID=1-2\noptions\trw " + planText + " \n"
	want["/boot/loader/entries/plain.conf"] = "-rw-r--r-- title plain\nmachine-id " + machineID +
		"\nlinux /plain\noptions " + planText + "\n"
	m.wantTree("made", want)
}

func TestGrubbyHasToSeeWhatWasMade(t *testing.T) {
	t.Parallel()
	m := fedora(t)
	before := m.tree()
	m.programs["grubby"] = func([]string) (string, error) { return "index=0\nargs=\"ro quiet\"\n", nil }
	m.mustFail("2 entries in /boot/loader/entries have the arguments, and /usr/sbin/grubby --info=ALL shows them in " +
		"0: does this machine start from elsewhere?")
	m.mustRollback()
	m.wantTree("rolled back", before)
}

func TestRollbackAfterAKernelUpdateTakesOurArgumentsOffTheNewEntry(t *testing.T) {
	t.Parallel()
	const added = "/boot/loader/entries/" + machineID + "-6.9.0-100.fc40.x86_64.conf"
	m := fedora(t)
	m.mustMake(change.Boot)
	m.write(added, bootEntry("6.9.0-100.fc40.x86_64", strings.TrimSpace(m.text(kernelCmdline))))
	if err := os.Remove(m.Path(fedoraOld)); err != nil {
		t.Fatal(err)
	}
	m.write(fedoraEntry, strings.Replace(m.text(fedoraEntry), "quiet", "debug", 1))
	m.mustMake(change.Boot)
	m.mustRollback()
	for path, want := range map[string]string{
		added:         bootEntry("6.9.0-100.fc40.x86_64", "root=UUID=1-2 ro isolcpus=1 rhgb quiet"),
		fedoraEntry:   bootEntry("6.8.5-301.fc40.x86_64", "root=UUID=1-2 ro rhgb debug $tuned_params isolcpus=1"),
		kernelCmdline: "root=UUID=1-2 ro isolcpus=1 rhgb quiet\n",
	} {
		if diff := cmp.Diff(want, m.text(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if m.Exists(fedoraOld) {
		t.Error("the entry of a kernel that is gone is back")
	}
}

func TestAnEntryThatIsNewBeforeTheRebootGetsTheArgumentsToo(t *testing.T) {
	t.Parallel()
	m := fedora(t)
	before := m.tree()
	m.mustMake(change.Boot)
	const added = "/boot/loader/entries/manual.conf"
	m.write(added, bootEntry("6.9.0", "ro"))
	m.mustMake(change.Boot)
	if got := m.text(added); got != bootEntry("6.9.0", "ro "+planText) {
		t.Errorf("it is\n%s", got)
	}
	if err := os.Remove(m.Path(added)); err != nil {
		t.Fatal(err)
	}
	m.mustRollback()
	m.wantTree("rolled back", before)
}

func TestCountedBootsDoNotMakeAnEntryANewOne(t *testing.T) {
	t.Parallel()
	m := systemdBoot(t)
	const counted, good = "/efi/loader/entries/x+3.conf", "/efi/loader/entries/x.conf"
	m.write(counted, "title x\nlinux /x\noptions isolcpus=1 ro quiet\n")
	m.mustMake(change.Boot)
	if err := os.Rename(m.Path(counted), m.Path(good)); err != nil { // systemd-bless-boot
		t.Fatal(err)
	}
	m.mustRollback()
	if got := m.text(good); got != "title x\nlinux /x\noptions isolcpus=1 ro quiet\n" {
		t.Errorf("it is\n%s", got)
	}
}

func rhel8(t testing.TB) *machine {
	m := fedora(t)
	const env = "/boot/efi/EFI/redhat/grubenv"
	text := "# GRUB Environment Block\nsaved_entry=x\nkernelopts=root=/dev/mapper/rhel-root ro isolcpus=1 rhgb quiet " +
		"\nboot_success=0\n"
	m.write(env, text+strings.Repeat("#", 1024-len(text)))
	for _, path := range []string{"/boot/grub2/grubenv", fedoraOld, kernelCmdline} {
		if err := os.Remove(m.Path(path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../efi/EFI/redhat/grubenv", m.Path("/boot/grub2/grubenv")); err != nil {
		t.Fatal(err)
	}
	m.write(fedoraEntry, bootEntry("4.18.0-553.el8.x86_64", "$kernelopts $tuned_params"))
	return m
}

func TestOptionsInGRUBsEnvironmentAreChangedThere(t *testing.T) {
	t.Parallel()
	const env = "/boot/efi/EFI/redhat/grubenv"
	m := rhel8(t)
	entry := m.text(fedoraEntry)
	m.mustMake(change.Boot)
	got := m.text(env)
	want := "# GRUB Environment Block\nsaved_entry=x\nkernelopts=root=/dev/mapper/rhel-root ro rhgb quiet " + planText +
		" \nboot_success=0\n"
	if len(got) != 1024 || strings.TrimRight(got, "#") != want {
		t.Errorf("GRUB's environment of %d bytes is\n%s\nwant\n%s", len(got), got, want)
	}
	if m.text(fedoraEntry) != entry {
		t.Error("the entry was changed")
	}
	booted := func(text string) string { return strings.Replace(text, "boot_success=0", "boot_success=1", 1) }
	m.write(env, booted(got))
	m.mustRollback()
	if got, want := m.text(env), booted(rhel8(t).text(env)); got != want {
		t.Errorf("rolled back it is\n%s\nwant\n%s", got, want)
	}

	m = rhel8(t)
	m.write(env, strings.Replace(m.text(env), "quiet", "quiet x="+strings.Repeat("1", 880), 1)[:1024])
	m.refused("GRUB's environment block has 1024 bytes, and would need")

	m = rhel8(t)
	m.write(env, "# GRUB Environment Block\n####")
	m.refused(`$kernelopts is used, and is not set in GRUB's environment: grubby --update-kernel=ALL --args="iommu=pt`)
}

func TestRollbackOfAnEntryWhoseLinesHaveChanged(t *testing.T) {
	t.Parallel()
	args := []string{"iommu=pt", "isolcpus=2"}
	tests := []struct{ name, before, now, want string }{
		{"a line more", "options ro isolcpus=1\n", "options ro iommu=pt isolcpus=2\noptions debug\n",
			"options ro\noptions debug isolcpus=1\n"},
		{"a line less", "options ro\noptions isolcpus=1\n", "options iommu=pt isolcpus=2\n", "options isolcpus=1\n"},
		{"another title", "title a\noptions ro isolcpus=1\n", "title b\noptions ro iommu=pt isolcpus=2\n",
			"title b\noptions ro isolcpus=1\n"},
		{"no options before, and more now", "title a\n", "title a\noptions iommu=pt isolcpus=2 debug\n",
			"title a\noptions debug\n"},
		{"ours are gone", "options ro isolcpus=1\n", "options ro\noptions\tquiet\n", "options ro\noptions\tquiet\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := undoOptions(entryForm, tt.now, tt.before, args)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestANewEntryIsUndoneByThoseOfBeforeWhereThereIsNothingElse(t *testing.T) {
	t.Parallel()
	m := systemdBoot(t)
	m.mustMake(change.Boot)
	const added = "/boot/loader/entries/new.conf"
	m.write(added, "linux /new\noptions root=UUID=1-2 rw "+planText+" extra\n")
	m.mustRollback()
	if got := m.text(added); got != "linux /new\noptions root=UUID=1-2 rw extra isolcpus=1\n" {
		t.Errorf("it is\n%s", got)
	}
}

func TestQuotesThatHideTheArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	m := systemdBoot(t)
	m.write("/boot/loader/entries/plain.conf", "linux /plain\noptions y=\"\noptions a\" isolcpus=1\n")
	m.refused("/boot/loader/entries/plain.conf: a quote in the command line does not end where it should")
}

func TestBootEntriesThatWouldBeTooLongAreRefused(t *testing.T) {
	t.Parallel()
	m := fedora(t)
	m.write(fedoraOld, bootEntry("1", "x="+strings.Repeat("1", 2000)))
	m.refused(fedoraOld + ": the command line would have")
}

func TestEntriesOfARealKernelInstall(t *testing.T) {
	t.Parallel()
	program := need(t, "kernel-install", "systemd")
	m := systemdBoot(t)
	m.write("/etc/kernel/cmdline", "root=UUID=1-2 ro isolcpus=1\n")
	m.write("/etc/kernel/install.conf", "layout=bls\nMACHINE_ID="+machineID+"\nBOOT_ROOT="+m.Path("/boot")+"\n")
	m.write("/etc/kernel/entry-token", machineID+"\n")
	m.write("/image", "kernel")
	install := func(version string) string {
		t.Helper()
		if err := os.MkdirAll(m.Path("/boot/"+machineID+"/"+version), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "add", version, m.Path("/image"))
		// The other plugins look for modules.
		cmd.Env = append(os.Environ(), "KERNEL_INSTALL_CONF_ROOT="+m.Path("/etc/kernel"),
			"KERNEL_INSTALL_PLUGINS=/usr/lib/kernel/install.d/90-loaderentry.install", "BOOT_ROOT="+m.Path("/boot"),
			"MACHINE_ID="+machineID)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return "/boot/loader/entries/" + machineID + "-" + version + ".conf"
	}
	first := install("6.1.0-1")
	before := m.tree()
	m.mustMake(change.Boot)
	suffix := " systemd.machine_id=" + machineID
	if got, want := parseOptions(entryForm, m.text(first)).line(), "root=UUID=1-2 ro"+suffix+" "+planText; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	second := install("6.1.0-2")
	if line := parseOptions(entryForm, m.text(second)).line(); !cmdline.Has(line, planArgs) {
		t.Errorf("an entry that was made since has %s", line)
	}
	m.mustRollback()
	if got, want := parseOptions(entryForm, m.text(second)).line(), "root=UUID=1-2 ro"+suffix+
		" isolcpus=1"; got != want {
		t.Errorf("rolled back it is %s; want %s", got, want)
	}
	for path := range m.tree() {
		if strings.Contains(path, "6.1.0-2") {
			if err := os.RemoveAll(m.Path(path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.wantTree("without the second", before)
}

func TestOptionsFilesAreEditedAndUndone(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{"ro", "quiet", "isolcpus=1", "iommu=pt", "hugepagesz=2M", "hugepages=4",
		"hugepagesz=1G", "nohz_full=2-29", "--", "$tuned_params", `x="a b"`, "é", `y="`})
	rapid.Check(t, func(t *rapid.T) {
		form := rapid.SampledFrom([]optionsForm{entryForm, cmdlineForm, envForm}).Draw(t, "form")
		line := func() string {
			return strings.Join(rapid.SliceOfN(word, 0, 6).Draw(t, "words"),
				rapid.SampledFrom([]string{" ", "  ", "\t"}).Draw(t, "space"))
		}
		text := ""
		switch form {
		case entryForm:
			text = "title x\nlinux /x\n"
			for range rapid.IntRange(0, 3).Draw(t, "lines") {
				text += rapid.SampledFrom([]string{"options ", "options\t", " options  ", "# options ", "optional "}).
					Draw(t, "key") + line() + rapid.SampledFrom([]string{"\n", "\r\n", "\ninitrd /x\n", "\n\n"}).Draw(t,
					"end")
			}
		case cmdlineForm:
			for range rapid.IntRange(0, 3).Draw(t, "lines") {
				text += rapid.SampledFrom([]string{"", "# ", " "}).Draw(t, "comment") + line() + "\n"
			}
		case envForm:
			text = "# GRUB Environment Block\na=b\nkernelopts=" + line() + "\nc=d\n"
			text += strings.Repeat("#", 1024-len(text))
		}
		text = strings.TrimSuffix(text, rapid.SampledFrom([]string{"", "\n"}).Draw(t, "no end"))
		edited, err := editOptions(form, text, planArgs)
		if err != nil {
			if lines := parseOptions(form, text).pieces; len(lines) > 1 && strings.Contains(text, `y="`) {
				return // split over two lines
			}
			t.Fatal(err)
		}
		if !cmdline.Has(parseOptions(form, edited).line(), planArgs) {
			t.Fatalf("%q does not have the arguments", edited)
		}
		if again, err := editOptions(form, edited, planArgs); err != nil || again != edited {
			t.Fatalf("%v: again it is %q, not %q", err, again, edited)
		}
		if undone, err := undoOptions(form, edited, text, planArgs); err != nil || undone != text {
			t.Fatalf("%v: undone it is %q, not %q", err, undone, text)
		}
		if form == envForm && len(edited) != len(text) {
			t.Fatalf("it has %d bytes, not %d", len(edited), len(text))
		}
	})
}

func FuzzOptions(f *testing.F) {
	for form := range 3 {
		for _, text := range []string{"", "options", "options ", "options ro\n", bootEntry("1", "ro isolcpus=1"),
			"# GRUB Environment Block\nkernelopts=ro\n####", "ro\n# c\nquiet", "options $kernelopts isolcpus=1\n",
			"options\t\r\noptions x"} {
			f.Add(form, text)
		}
	}
	f.Fuzz(func(t *testing.T, form int, text string) {
		if form < 0 || form > 2 {
			return
		}
		o := parseOptions(optionsForm(form), text)
		if o.text() != text {
			t.Fatalf("%q was read as %q", text, o.text())
		}
		edited, err := editOptions(optionsForm(form), text, planArgs)
		if err != nil {
			return
		}
		again, err := editOptions(optionsForm(form), edited, planArgs)
		if err != nil || again != edited {
			t.Fatalf("%v: %q became %q, and then %q", err, text, edited, again)
		}
		if undone, err := undoOptions(optionsForm(form), edited, text, planArgs); err != nil || undone != text {
			t.Fatalf("%v: %q became %q, and then %q", err, text, edited, undone)
		}
	})
}
