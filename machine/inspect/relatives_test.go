package inspect

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestAFileOfRacklessThatIsNoMachineIsCalledWhatItIs(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"../../examples/hosts/desktop.yaml",
			"it is the profile of an emulated host: look at the machine with rackless emulate PROFILE"},
		{"../../examples/hosts/epyc-7551p.yaml", "it is the profile of an emulated host"},
		{"../../examples/pair.yaml", "it is a lab file: rackless up and rackless plan take it"},
		{"../../examples/studies/contention.yaml", "it is the file of a study"},
		{"../../README.md", "it starts with"}, // it shows a lab file further below
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if c.file == "../../README.md" {
			text = []byte("A text about " + strings.ReplaceAll(string(text), "\nnodes:", "\n  nodes:"))
		}
		if err := unknownError(nil, text); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

func TestADescriptionOfAMachineIsCalledWhatItIs(t *testing.T) {
	why := errors.New("not YAML")
	for text, want := range map[string]string{
		someHwloc:  "host.txt is not a lab file: it is the description of a machine (hwloc XML): rackless inspect",
		someText:   "it is the description of a machine (text archive)",
		"Dear all": "not YAML",
	} {
		err := Misplaced("host.txt", []byte(text), "a lab file", why)
		if !strings.HasSuffix(err.Error(), "not YAML") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q and the error", err, want)
		}
	}
}
