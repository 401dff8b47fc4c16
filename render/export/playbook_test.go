package export_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/render/export"
)

// onAnEmulatedHost is a lab that takes CPUs, hugepages and a virtual function of a host.
const onAnEmulatedHost = `name: group
driver: libvirt
hugepages: 2MiB
nodes: {vm: {cpus: 1, memory: 256MiB, vfs: 1}}
`

// overSSH is in place of ssh: it runs a command line in an emulated host.
const overSSH = `#!/bin/sh
for command; do :; done
exec env HOME=%s RACKLESS_RUN=%s %s emulate host -- sh -c "$command"
`

// afterBoot are the checks that --no-reboot leaves to the next boot: kernel arguments, and the threads and interrupts
// that only they keep off CPUs.
var afterBoot = []string{"RL205", "RL206", "RL207"}

// Ansible prepares an emulated host by the playbook, and verifies it. The second time there is nothing to do, and
// rollback undoes it. The program is in its place already: the guest agent of the host takes 16 MiB at once.
func TestAnsiblePreparesAHost(t *testing.T) {
	t.Parallel()
	playbook := judge(t, "ansible", "ansible-playbook")
	if !*judges {
		t.Skip("a host is emulated for it: make test-judges does it")
	}
	binary, err := filepath.Abs("../../bin/rackless")
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("/tmp", "rl") // short, since sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	command := func(argv ...string) (string, error) {
		c := exec.Command(argv[0], argv[1:]...) // the host is removed after the test, too
		c.Env = append(os.Environ(), "RACKLESS_RUN="+run)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	rackless := func(args ...string) string {
		t.Helper()
		out, err := command(append([]string{binary, "emulate"}, args...)...)
		if err != nil {
			t.Fatalf("rackless emulate %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	t.Cleanup(func() {
		rackless("rm", "host")
		os.RemoveAll(run)
	})
	const dir = "/var/lib/rackless/ansible"
	rackless("--keep", "--name", "host", "../../cmd/rackless/testdata/faults/host.yaml", "--", "sh", "-c",
		"mkdir -p "+dir+" && cp $(command -v rackless) "+dir)
	l, err := lab.Parse("group.yaml", []byte(onAnEmulatedHost))
	if err != nil {
		t.Fatal(err)
	}
	files, err := export.AnsibleHosts(render.Input{Lab: l})
	if err != nil {
		t.Fatal(err)
	}
	book, ssh := filepath.Join(run, "prepare.yaml"), filepath.Join(run, "ssh")
	if err := errors.Join(os.WriteFile(book, files[0].Data, 0o600),
		os.WriteFile(ssh, fmt.Appendf(nil, overSSH, os.Getenv("HOME"), run, binary), 0o700)); err != nil {
		t.Fatal(err)
	}
	vars, err := json.Marshal(map[string]any{
		"rackless_binary": binary, "rackless_results": run, "rackless_arguments": []string{"--no-reboot"},
		"ansible_become": false, "ansible_python_interpreter": "/usr/bin/python3", "ansible_pipelining": true,
		"ansible_ssh_executable": ssh, "ansible_ssh_transfer_method": "piped",
	})
	if err != nil {
		t.Fatal(err)
	}
	type answers struct {
		Prepare struct {
			RC      int
			Changed bool
			Stdout  string
		}
		Verify struct{ Stdout string }
	}
	play := func() (a answers) {
		t.Helper()
		// It fails where verify does.
		out, _ := command("env", "HOME="+run, playbook, "-i", "host,", "-c", "ssh", book, "-e", string(vars))
		data, err := os.ReadFile(filepath.Join(run, "host.json"))
		if err = errors.Join(err, json.Unmarshal(data, &a)); err != nil || a.Verify.Stdout == "" {
			t.Fatalf("%v\n%s", err, out)
		}
		return a
	}
	first := play()
	var checks []struct{ Code, Status, Title string }
	if err := json.Unmarshal([]byte(first.Verify.Stdout), &checks); err != nil || len(checks) < 15 {
		t.Errorf("%d checks: %v", len(checks), err)
	}
	for _, c := range checks {
		if c.Status != "ok" && !slices.Contains(afterBoot, c.Code) {
			t.Errorf("verify: %+v", c)
		}
	}
	if second := play(); !first.Prepare.Changed || second.Prepare.Changed || second.Prepare.RC != 0 {
		t.Errorf("prepared, and then again: %+v\n%+v", first.Prepare, second.Prepare)
	}
	survey := rackless("-n", "host", "--", "sh", "-c", "cd "+dir+" && ./rackless rollback --yes >log && "+
		"./rackless prepare lab.yaml --dry-run --no-reboot -o json")
	made, pending := strings.Count(first.Prepare.Stdout, `"made"`), strings.Count(survey, `"pending"`)
	if made == 0 || pending != made {
		t.Errorf("%d steps were made, and after rollback %d are to be made:\n%s", made, pending, survey)
	}
}
