package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rackless/rackless/vm/libvirttest"
)

// tenantXML's emulator is on the CPU of its only virtual CPU.
const tenantXML = `<domain type='qemu'>
  <name>tenant</name>
  <description>  two  spaces, an &amp; and a line
that stays</description>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <cputune>
    <vcpupin vcpu='0' cpuset='0'/>
    <emulatorpin cpuset='0'/>
  </cputune>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <devices><graphics type='vnc' port='-1' passwd='secret'/></devices>
</domain>
`

func TestAdoptADomain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts libvirtd and a domain: not with -short")
	}
	for program, debian := range libvirttest.Programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("no %s: install Debian's %s", program, debian)
			}
			t.Skipf("no %s: install Debian's %s to run this test", program, debian)
		}
	}
	t.Parallel()
	d, err := libvirttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	virsh := func(args ...string) string {
		t.Helper()
		out, err := d.Virsh(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	define := func(text string) {
		t.Helper()
		file := filepath.Join(d.Dir, "domain.xml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		virsh("define", file)
	}
	definition := func() string { return virsh("dumpxml", "--inactive", "--security-info", "tenant") }
	state := t.TempDir()
	rackless := func(code int, want string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "rackless",
			append([]string{"host", "adopt", "--connect", d.URI}, args...)...)
		cmd.Env = append(os.Environ(), "RACKLESS_STATE="+state)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
			t.Errorf("adopt %q: status %d, want %d and %q\n%s", args, got, code, want, out)
		}
		return string(out)
	}
	mend := []string{"tenant", "--host", "../../examples/hosts/r740.ttar"}
	define(tenantXML)
	before := definition()
	virsh("start", "tenant")
	running := virsh("dumpxml", "tenant")

	rackless(1, "no such domain", "nobody", "--yes", "--host", mend[2])
	rackless(1, "has not adopted it", "tenant", "--undo", "--yes")
	rackless(0, "+    <emulatorpin cpuset=", append(mend, "--dry-run")...)
	rackless(2, "look with --dry-run, then say --yes", mend...)
	if now := definition(); now != before {
		t.Errorf("a look changed the domain:\n%s", now)
	}

	if out := rackless(0, "tenant has the new description", append(mend, "--yes")...); strings.Contains(out, "secret") {
		t.Errorf("a password is shown:\n%s", out)
	}
	after := definition()
	if strings.Contains(after, "<emulatorpin cpuset='0'/>") || !strings.Contains(after, "passwd='secret'") {
		t.Errorf("adopted, the domain is\n%s", after)
	}
	rackless(0, "domain tenant stays as it is", append(mend, "--yes")...)
	if files, err := filepath.Glob(filepath.Join(state, "adopted", "*")); err != nil || len(files) == 0 {
		t.Errorf("journal %v, %v", files, err)
	}

	// Others' changes survive.
	define(strings.Replace(after, "two  spaces", "three", 1))
	rackless(1, "has been changed since it was adopted", "tenant", "--undo", "--yes")
	pinned := regexp.MustCompile(`<emulatorpin cpuset='[^']*'`).ReplaceAllString(after, "<emulatorpin cpuset='1'")
	define(pinned)
	rackless(1, "has been changed since it was adopted", "tenant", "--undo", "--yes")
	if now := definition(); now != pinned {
		t.Errorf("the administrator's pin is lost:\n%s", now)
	}
	define(after)

	if out := rackless(0, `"changed": true`, "tenant", "--undo", "--yes", "-o", "json"); !strings.Contains(out,
		`"state": "running"`) {
		t.Error(out)
	}
	if now := definition(); now != before {
		t.Errorf("taken back, the domain is\n%s\nand was\n%s", now, before)
	}
	if now := virsh("dumpxml", "tenant"); now != running {
		t.Errorf("the domain runs otherwise:\n%s", now)
	}
	if files, _ := filepath.Glob(filepath.Join(state, "adopted", "*")); len(files) > 0 {
		t.Errorf("left over: %v", files)
	}
	virsh("undefine", "tenant") // it keeps running, and becomes transient
	rackless(1, "it is transient", append(mend, "--yes")...)
	virsh("destroy", "tenant")

	define(strings.Replace(tenantXML, "<memory", fmt.Sprintf("<metadata><rackless:node xmlns:rackless='%s' lab='pair' "+
		"name='vm00'/></metadata><memory", "https://github.com/rackless/rackless/libvirt/1"), 1))
	rackless(1, "is node vm00 of lab pair", append(mend, "--yes")...)
}
