package words

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	t.Parallel()
	const assertion = "qemu-system-x86_64: ../target/i386/kvm/kvm.c:3213: Assertion `ret == n' failed."
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                     {"", ""},
		"a line of ours":              {"/dev/kvm is not there", "/dev/kvm is not there"},
		"a file of ours":              {"report.json:3: unexpected end", "report.json:3: unexpected end"},
		"a program by its name":       {"KVM does not work: " + assertion, "KVM does not work"},
		"a program alone":             {assertion, "a program failed, and said why"},
		"an assertion without a name": {"it ended: ../hw/core/cpu.c:12: cpu_reset: Assertion `0' failed", "it ended"},
		"libvirt's log":               {"no domain (libvirtd[812]: internal error: x)", "no domain"},
		"several lines":               {"exit status 1\nfirst\nsecond", "exit status 1"},
		"long":                        {strings.Repeat("seven w ", 40), strings.Repeat("seven w ", 19) + "seven…"},
		"one long word":               {strings.Repeat("W", 300), strings.Repeat("W", maxMessageLine) + "…"},
		"escapes":                     {"a\x1b[2Jb\u202e", `a\x1b[2Jb\u202e`},
		// the names occur in a sentence, not as the speaker
		"a sentence on QEMU": {"qemu-system-x86_64 is not installed", "qemu-system-x86_64 is not installed"},
	} {
		got := Fold(c.text)
		if got.Text != c.want {
			t.Errorf("%s: got %q, want %q", name, got.Text, c.want)
		}
		if folded := got.Text != strings.TrimSpace(c.text) && name != "escapes"; folded != (got.Whole != "") {
			t.Errorf("%s: the whole is %q", name, got.Whole)
		}
	}
	if m := Fold(strings.Repeat("€", 1<<20)); len(m.Whole) > 3*maxMessage+100 ||
		!strings.HasSuffix(m.Whole, "(1044576 more characters)") {
		t.Errorf("%d bytes are left of a megabyte", len(m.Whole))
	}
}
