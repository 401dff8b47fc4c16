package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/vm/qapi"
)

func TestWhyAnAgentDidNotAnswer(t *testing.T) {
	a := &agentConn{name: "pair.vm00"}
	for _, tt := range []struct {
		code              api.ErrorNumber
		said, class, want string
	}{
		// Errors of libvirt 9.0.0.
		{api.ErrInternalError, "internal error: unable to execute QEMU agent command 'guest-exec': Guest agent " +
			"command " +
			"failed, error was 'Failed to execute child process'",
			"GenericError", "guest-exec: Guest agent command failed, error was 'Failed to execute child process'"},
		{api.ErrAgentUnresponsive, "Guest agent is not responding: QEMU guest agent is not connected",
			qapi.ClassUnreachable, "agent of pair.vm00: Guest agent is not responding"},
		{api.ErrOperationInvalid, "Requested operation is not valid: domain is not running", qapi.ClassUnreachable,
			"domain is not running"},
		{api.ErrNoDomain, "Domain not found: no domain with matching uuid", qapi.ClassUnreachable, "Domain not found"},
		{api.ErrArgumentUnsupported, "argument unsupported: QEMU guest agent is not configured", qapi.ClassUnreachable,
			"not configured"},
		{api.ErrAgentUnresponsive, "Guest agent is not responding: Guest agent not available for now", "",
			"agent of pair.vm00: guest-exec: Guest agent is not responding"},
		{api.ErrRPC, "Unable to encode message payload", "", "libvirt passes on at most 4 MiB at once"},
		{api.ErrInternalError, "internal error: End of file from qemu monitor", "",
			"agent of pair.vm00: guest-exec: internal error: End of file"},
	} {
		err := a.explain("guest-exec", api.Error{Code: uint32(tt.code), Message: tt.said})
		e, answered := errors.AsType[*qapi.Error](err)
		if answered != (tt.class != "") || answered && e.Class != tt.class || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v (%T), want %s %s", tt.said, err, err, tt.class, tt.want)
		}
	}
	if err := a.explain("guest-exec", errors.New("interrupted")); err == nil ||
		err.Error() != "agent of pair.vm00: guest-exec: interrupted" {
		t.Errorf("got %v", err)
	}
	if err := a.Call(t.Context(), "guest-exec", strings.Repeat("x", maxAnswer), nil); err == nil ||
		!strings.Contains(err.Error(), "at most 4 MiB") {
		t.Errorf("a command that is too long: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for v, want := range map[uint64]string{9000000: "9.0.0", 10000002: "10.0.2", 8002013: "8.2.13"} {
		if got := version(v); got != want {
			t.Errorf("version %d is %s, want %s", v, got, want)
		}
	}
}

func TestAdvice(t *testing.T) {
	socket := func(err error) error {
		return &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/run/libvirt/libvirt-sock"},
			Err: os.NewSyscallError("connect", err)}
	}
	libvirt := func(code api.ErrorNumber, text string) error { return api.Error{Code: uint32(code), Message: text} }
	for _, tt := range []struct {
		uri  string
		err  error
		want string
	}{
		{"qemu:///system", socket(syscall.ENOENT), ": start the daemon: systemctl start libvirtd"},
		{"qemu:///system", socket(syscall.ECONNREFUSED), ": start the daemon: systemctl start libvirtd"},
		{"qemu:///system", socket(syscall.EACCES), ": add the user to the group libvirt, or run as root"},
		{"qemu:///system", libvirt(api.ErrAuthUnavailable, "authentication unavailable: no polkit agent available"),
			": add the user to the group libvirt, or run as root"},
		{"qemu:///system", libvirt(api.ErrNoConnect, "no connection driver available for qemu:///system"),
			": install the driver: Debian's libvirt-daemon-driver-qemu"},
		{"qemu+ssh://h/system", errors.New("user@h: Permission denied (publickey,password)."),
			": let ssh log in there by key"},
		{"qemu+ssh://h/system", errors.New("Host key verification failed."), ": log in there once by ssh"},
		{"qemu+ssh://h/system", errors.New("ssh: Could not resolve hostname h: Name or service not known"),
			": look at the name of the host"},
		{"qemu+ssh://h/system", errors.New("ssh: connect to host h port 22: Connection refused"),
			": look whether the host is up"},
		{"qemu+ssh://h/system", errors.New("cannot connect to '/run/libvirt/libvirt-sock': Failed to connect " +
			"socket to " +
			"'/run/libvirt/libvirt-sock': No such file or directory"), ": on the host, start the daemon"},
		{"qemu+tls://h/system", fmt.Errorf("could not read tls CA cert: %w", &os.PathError{Op: "open",
			Path: "/etc/pki/CA/cacert.pem", Err: syscall.ENOENT}), ": make certificates"},
		{"qemu:///system", errors.New("something else"), "something else"},
	} {
		u, err := url.Parse(tt.uri)
		if err != nil {
			t.Fatal(err)
		}
		if got := advise(u, tt.err).Error(); !strings.HasPrefix(got, tt.err.Error()) ||
			!strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.uri, got, tt.want)
		}
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]struct{ local, system bool }{
		"qemu:///system":                       {true, true},
		"qemu:///session":                      {true, false},
		"qemu+unix:///system?socket=/x":        {true, true},
		"qemu+ssh://root@h:2222/system":        {false, true},
		"qemu+ssh://h/session?keyfile=/home/x": {false, false},
		"qemu+tls://h/system":                  {false, true},
	} {
		u, err := checkURI(uri)
		c := &Conn{uri: u}
		if err != nil || c.Local() != want.local || c.system() != want.system {
			t.Errorf("%s: local %v, system %v, %v, want %+v", uri, c.Local(), c.system(), err, want)
		}
	}
}

func TestSSHIsRunAsLibvirtRunsIt(t *testing.T) {
	const quiet = "-T -e none -o BatchMode=yes"
	for uri, want := range map[string]string{
		"qemu+ssh://h/system":                             "ssh " + quiet + " -- h",
		"qemu+ssh://root@h:2222/system?keyfile=/k":        "ssh -p 2222 -l root -i /k " + quiet + " -- h",
		"qemu+ssh://h/system?no_tty=0":                    "ssh -- h",
		"qemu+ssh://h/system?no_verify=1&command=/my/ssh": "/my/ssh " + quiet + " -o StrictHostKeyChecking=no -- h",
		"qemu+libssh://h/system?known_hosts=/f&known_hosts_verify=auto": "ssh " + quiet +
			" -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=/f -- h",
		"qemu+ssh://[fe80::1]/system": "ssh " + quiet + " -- fe80::1",
	} {
		u, err := checkURI(uri)
		if err != nil {
			t.Fatal(err)
		}
		argv := sshCommand(u)
		if got := strings.Join(argv[:len(argv)-1], " "); got != want || !strings.HasPrefix(argv[len(argv)-1],
			"sh -c '") {
			t.Errorf("%s:\ngot  %s\nwant %s", uri, got, want)
		}
	}
}

func TestWhatIsRunAtTheOtherEndOfSSH(t *testing.T) {
	dir := t.TempDir()
	program := func(name, script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const say = `echo "${0##*/} $*"`
	program("nc", "[ \"$*\" != -q ] || { echo 'nc: option requires an argument' >&2; exit 1; }\n"+say)
	program("ncat", say)
	if err := os.Symlink("/bin/grep", filepath.Join(dir, "grep")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uri    string
		helper bool
		want   string
	}{
		{"qemu+ssh://h/system", true, "virt-ssh-helper qemu:///system"},
		{"qemu+ssh://h/session?mode=direct", true, "virt-ssh-helper qemu:///session?mode=direct"},
		{"qemu+ssh://h/system?socket=/x", true, "virt-ssh-helper qemu:///system?socket=%2Fx"},
		{"qemu+ssh://h/system", false, "nc -q0 -U /run/libvirt/libvirt-sock"},
		{"qemu+ssh://h/session", false, "nc -q0 -U /home/it's me/.cache/libvirt/libvirt-sock"},
		{"qemu+ssh://h/system?socket=/a'b%20c", false, "nc -q0 -U /a'b c"},
		{"qemu+ssh://h/system?proxy=netcat", true, "nc -q0 -U /run/libvirt/libvirt-sock"},
		{"qemu+ssh://h/system?netcat=ncat", true, "ncat -U /run/libvirt/libvirt-sock"},
		{"qemu+ssh://h/system?proxy=native", true, "virt-ssh-helper qemu:///system"},
	} {
		program("virt-ssh-helper", say)
		if !tt.helper {
			if err := os.Remove(filepath.Join(dir, "virt-ssh-helper")); err != nil {
				t.Fatal(err)
			}
		}
		u, err := checkURI(tt.uri)
		if err != nil {
			t.Fatal(err)
		}
		argv := sshCommand(u)
		cmd := exec.Command("/bin/sh", "-c", argv[len(argv)-1])
		cmd.Env = []string{"PATH=" + dir + ":/bin", "HOME=/home/it's me"}
		if tt.helper || !onPath("/bin", "virt-ssh-helper") {
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
				t.Errorf("%s: got %s, %v, want %s", tt.uri, got, err, tt.want)
			}
		}
	}
}

func onPath(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func TestSocketsOfThisMachine(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	for uri, want := range map[string][]string{
		"qemu:///system":                {"/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock"},
		"qemu:///session":               {"/run/user/7/libvirt/virtqemud-sock", "/run/user/7/libvirt/libvirt-sock"},
		"qemu:///system?mode=legacy":    {"/run/libvirt/libvirt-sock"},
		"qemu:///system?mode=direct":    {"/run/libvirt/virtqemud-sock"},
		"qemu+unix:///system?socket=/x": {"/x"},
	} {
		u, err := checkURI(uri)
		if err != nil {
			t.Fatal(err)
		}
		if got := localSockets(u); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", uri, got, want)
		}
	}
}

// Replacements for ssh.
func TestProgramsThatDoNotConnect(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"one that says why it cannot": {"echo 'Host key verification failed.' >&2; exit 255",
			"Host key verification failed.: log in there once by ssh"},
		"one that just ends": {"exit 3", "exit status 3"},
		// Like a jump host's ssh, sleep holds the connection open.
		"one that hangs": {"sleep 600", "too slow"},
		"one that greets": {"echo Welcome; sleep 600",
			`it answers "Welc", which is not libvirt's protocol`},
		"one that repeats its input":   {"cat", "EOF while decoding"},
		"one that complains for ever ": {"yes >&2", "too slow"},
	} {
		// Before any test runs: a child of a parallel test could inherit the open file, which the kernel then does not
		// execute.
		path := filepath.Join(t.TempDir(), "ssh")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errors.New("too slow"))
			defer cancel()
			c, err := Connect(ctx, "qemu+ssh://h/system?command="+path)
			if err == nil {
				t.Fatal(c.Close())
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := Connect(t.Context(), "qemu+ssh://h/system?command=/nonexistent"); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("no program: %v", err)
	}
	if _, err := Connect(t.Context(), "qemu+pigeon://h/system"); err == nil ||
		!strings.Contains(err.Error(), `transport "pigeon" is not known`) {
		t.Errorf("no transport: %v", err)
	}
}

func TestWhatAProgramSaysIsKeptInPart(t *testing.T) {
	var w firstWords
	for range 3 {
		if n, err := w.Write(make([]byte, 3000)); n != 3000 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	if diff := cmp.Diff(4096, len(w)); diff != "" {
		t.Error(diff)
	}
}
