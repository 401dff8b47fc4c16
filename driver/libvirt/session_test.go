package libvirt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/qapi"
)

// standIn is a virsh that was built without readline, so that it does not repeat what it reads, and
// that knows a few commands.
const standIn = `#!/bin/sh
printf 'virsh # '
while IFS= read -r line; do
	case $line in
	'echo --err "'*) l=${line#*\"}; echo "error: ${l%%\"*}${l#*\"}" >&2 ;;
	'echo "'*) l=${line#*\"}; printf '%s%s' "${l%%\"*}" "${l#*\"}" ;;
	"'lines'") printf 'one\ntwo virsh # \n\n' ;;
	"'nothing'") ;;
	"'prompt'") printf 'virsh # ' ;;
	"'refuse'") echo 'error: cannot do that' >&2; printf 'half' ;;
	"'news'") echo 'error: Disconnected from qemu:///system due to end of file' >&2; echo 'error: Reconnected to the hypervisor' >&2; echo ok ;;
	"'die'") echo 'error: something broke' >&2; exit 1 ;;
	"'vanish'") exit 7 ;;
	"'hang'") sleep 600 ;;
	"'flood'") yes 0123456789abcdef ;;
	esac
	printf 'virsh # '
done
`

// talk starts a session with a script in virsh's place.
func talk(t *testing.T, script string) (*session, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "virsh")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := startSession(limited(t), path, "qemu:///system")
	if err == nil {
		t.Cleanup(s.kill)
	}
	return s, err
}

func TestSessionWithAVirshThatDoesNotRepeatItsInput(t *testing.T) {
	s, err := talk(t, standIn)
	if err != nil {
		t.Fatal(err)
	}
	if s.echoes {
		t.Error("it is taken for one that repeats its input")
	}
	for range 2 {
		for _, tt := range []struct{ command, want, wantErr string }{
			{"lines", "one\ntwo virsh # \n\n", ""},
			{"nothing", "", ""},
			{"refuse", "", "cannot do that"},
			{"news", "ok\n", ""},
			{"lines", "one\ntwo virsh # \n\n", ""},
		} {
			out, err := s.run(limited(t), commandLine([]string{tt.command}))
			if _, refused := errors.AsType[*virshError](err); string(out) != tt.want ||
				(err != nil) != (tt.wantErr != "") || err != nil && (!refused || err.Error() != tt.wantErr) {
				t.Errorf("%s: got %q, %v, want %q, %s", tt.command, out, err, tt.want, tt.wantErr)
			}
		}
	}
}

func TestSessionsThatEnd(t *testing.T) {
	for command, want := range map[string]string{
		"die":    "something broke",
		"vanish": "virsh ended (exit status 7) before it answered: whether the command was carried out is not known",
		"flood":  "virsh ended (signal: killed) before it answered: whether the command was carried out is not known",
	} {
		s, err := talk(t, standIn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.run(limited(t), commandLine([]string{command}))
		if _, refused := errors.AsType[*virshError](err); err == nil || refused || err.Error() != want {
			t.Errorf("%s: got %v (%T), want %s", command, err, err, want)
		}
	}
	s, err := talk(t, standIn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("too slow"))
	defer cancel()
	// sleep is a child, as ssh is virsh's, and holds the pipes open.
	if _, err := s.run(ctx, commandLine([]string{"hang"})); err == nil || err.Error() != "too slow" {
		t.Errorf("hang: got %v", err)
	}
}

func TestProgramsThatAreNoVirsh(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"one that says why it cannot": {"#!/bin/sh\necho 'error: failed to connect to the hypervisor' >&2\necho " +
			"'error: no daemon' >&2\nexit 1\n",
			"failed to connect to the hypervisor: no daemon"},
		"one that just ends":         {"#!/bin/sh\nexit 3\n", "virsh ended (exit status 3)"},
		"one that repeats its input": {"#!/bin/sh\ntee /dev/stderr\n", "too slow"},
		"no program":                 {"", "exec format error"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "virsh")
			if err := os.WriteFile(path, []byte(tt.script), 0o755); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too slow"))
			defer cancel()
			if tt.want != "too slow" {
				ctx = limited(t)
			}
			s, err := startSession(ctx, path, "qemu:///system")
			if err == nil {
				s.kill()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestWhatReadlineWouldEditIsNotSent(t *testing.T) {
	s, err := talk(t, standIn)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"a\nb", "a\tb", "\x00", "\x7f", "é", "\x1b[A"} {
		if _, err := s.run(limited(t), commandLine([]string{"lines", word})); err == nil ||
			!strings.Contains(err.Error(), "cannot be sent to virsh: want printable ASCII") {
			t.Errorf("%q: got %v", word, err)
		}
	}
	if out, err := s.run(limited(t), commandLine([]string{"lines"})); err != nil ||
		string(out) != "one\ntwo virsh # \n\n" {
		t.Errorf("the next command: %q, %v", out, err)
	}
}

// A splitReader gives its bytes in pieces of a chosen size.
type splitReader struct {
	data []byte
	size int
}

func (r *splitReader) Read(b []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, errors.New("no more")
	}
	n := copy(b, r.data[:min(r.size, len(r.data))])
	r.data = r.data[n:]
	return n, nil
}

func TestMarkersComeInPieces(t *testing.T) {
	for size := 1; size < 20; size++ {
		got, err := readTo(&splitReader{[]byte("some output\nE0123456789 and more"), size}, "E0123456789")
		if err != nil || string(got) != "some output\n" {
			t.Errorf("pieces of %d bytes: got %q, %v", size, got, err)
		}
		if got, err := readTo(&splitReader{[]byte("some output"), size}, "E0123456789"); err == nil ||
			string(got) != "some output" {
			t.Errorf("pieces of %d bytes without a marker: got %q, %v", size, got, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	for stderr, want := range map[string]string{
		"":                                  "",
		"error: failed to get domain 'x'\n": "failed to get domain 'x'",
		"error: Failed to start domain 'x'\nerror: internal error: qemu said:\n2026-11-22: no memory\n": "Failed to start domain 'x': internal error: qemu said:: 2026-11-22: no memory",
		"warning: odd\nerror: \nerror: no\n": "no",
		"error: Disconnected from qemu:///system due to end of file\nerror: Reconnected to the hypervisor\n": "",
		"error: Disconnected from qemu:///system due to end of file\nerror: failed to reconnect\n":           "failed to reconnect",
	} {
		if got := errorText([]byte(stderr)); got != want {
			t.Errorf("%q: got %q, want %q", stderr, got, want)
		}
	}
}

func TestASCIIJSONIsTheSameJSON(t *testing.T) {
	for _, text := range []string{"", "plain", "tab\tquote\"back\\slash'single\x01", "ü ß é \u2028", "😀𝄞", "\x7f",
		"<&>"} {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		got := asciiJSON(append(b, '\n'))
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || back != text {
			t.Errorf("%q: %s is %q, %v", text, got, back, err)
		}
	}
}

func FuzzASCIIJSON(f *testing.F) {
	f.Add("it's \"😀\" \\u00e9 \x7f\t")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // encoding/json replaces what is none
		}
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		got := asciiJSON(b)
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || back != text {
			t.Errorf("%q: %s is %q, %v", text, got, back, err)
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Errorf("%q is not printable ASCII", got)
		}
	})
}

// FuzzCut holds the frame of an output against any output.
func FuzzCut(f *testing.F) {
	f.Add("", true)
	f.Add("virsh # echo \"E\"0123\nE0123", false)
	f.Add("\n\nerror: \n", true)
	f.Fuzz(func(t *testing.T, output string, echoes bool) {
		s := &session{nonce: "0123456789abcdef", echoes: echoes}
		request, printed := s.marker("E")
		if strings.Contains(output, printed) {
			return // which nobody can foresee
		}
		raw := prompt + output + prompt
		if echoes {
			raw = prompt + "'dumpxml' 'x'\n" + output + prompt + "echo " + request + "\n"
		}
		raw, err := before(raw+printed+prompt, printed)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.cut([]byte(raw)); err != nil || !bytes.Equal(got, []byte(output)) {
			t.Errorf("got %q, %v, want %q", got, err, output)
		}
	})
}

func before(text, marker string) (string, error) {
	b, err := readTo(strings.NewReader(text), marker)
	return string(b), err
}

func TestFramesThatAreBroken(t *testing.T) {
	for _, s := range []*session{{echoes: true}, {}} {
		if out, err := s.cut([]byte("no prompt")); err == nil {
			t.Errorf("got %q", out)
		}
	}
	if out, err := (&session{echoes: true}).cut([]byte("'list' virsh # ")); err == nil {
		t.Errorf("without its command: got %q", out)
	}
}

func TestWhyAnAgentDidNotAnswer(t *testing.T) {
	a := &agentConn{name: "pair.vm00"}
	for _, tt := range []struct{ said, class, want string }{
		{"internal error: unable to execute QEMU agent command 'guest-exec': Guest agent command failed, error was " +
			"'Failed to execute child process'",
			"GenericError", "guest-exec: Guest agent command failed, error was 'Failed to execute child process'"},
		{"Guest agent is not responding: QEMU guest agent is not connected", qapi.ClassUnreachable,
			"agent of pair.vm00: Guest agent is not responding"},
		{"Requested operation is not valid: domain is not running", qapi.ClassUnreachable, "domain is not running"},
		{"failed to get domain 'x'", qapi.ClassUnreachable, "failed to get domain"},
		{"Guest agent is not responding: Guest agent not available for now", "",
			"agent of pair.vm00: guest-exec: Guest agent is not responding"},
		{"Unable to encode message payload", "", "libvirt passes on at most 4 MiB at once"},
	} {
		err := a.explain("guest-exec", &virshError{tt.said})
		e, answered := errors.AsType[*qapi.Error](err)
		if answered != (tt.class != "") || answered && e.Class != tt.class || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v (%T), want %s %s", tt.said, err, err, tt.class, tt.want)
		}
	}
	if err := a.explain("guest-exec", errors.New("interrupted")); err == nil ||
		err.Error() != "agent of pair.vm00: guest-exec: interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestVersions(t *testing.T) {
	// libvirt 9.0.0 of Debian 12 with QEMU 10.0.2 of its backports.
	got := versions([]byte("Compiled against library: libvirt 9.0.0\nUsing library: libvirt 9.0.0\nUsing API: QEMU " +
		"9.0.0\nRunning hypervisor: QEMU 10.0.2\nRunning against daemon: 9.0.0\n\n"))
	if diff := cmp.Diff(Capabilities{Virsh: "9.0.0", QEMU: "10.0.2", Daemon: "9.0.0"}, got); diff != "" {
		t.Error(diff)
	}
	if got := versions([]byte("nonsense\n: \n")); got != (Capabilities{}) {
		t.Errorf("got %+v", got)
	}
}

func TestAdvice(t *testing.T) {
	for _, tt := range []struct{ uri, said, want string }{
		{"qemu:///system", "Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or directory",
			": start the daemon: systemctl start libvirtd"},
		{"qemu:///system", "Failed to connect socket to '/var/run/libvirt/libvirt-sock': Permission denied",
			": add the user to the group libvirt, or run as root"},
		{"qemu:///system", "authentication unavailable: no polkit agent available",
			": add the user to the group libvirt, or run as root"},
		{"qemu+ssh://h/system", "Cannot recv data: user@h: Permission denied (publickey,password).: Connection " +
			"reset by peer", ": let ssh log in there by key"},
		{"qemu+ssh://h/system", "Cannot recv data: Host key verification failed.: Connection reset by peer",
			": log in there once by ssh"},
		{"qemu+ssh://h/system", "Cannot recv data: ssh: Could not resolve hostname h: Name or service not known",
			": look at the name of the host"},
		{"qemu+ssh://h/system", "Cannot recv data: ssh: connect to host h port 22: Connection refused",
			": look whether the host is up"},
		{"qemu+ssh://h/system", "Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or " +
			"directory", ": on the host, start the daemon"},
		{"qemu+tls://h/system", "Cannot read CA certificate '/etc/pki/CA/cacert.pem': No such file or directory",
			": make certificates"},
		{"qemu:///system", "something else", "something else"},
	} {
		if got := advise(tt.uri, errors.New(tt.said)).Error(); !strings.HasPrefix(got, tt.said) ||
			!strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.uri, got, tt.want)
		}
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]struct {
		full          string
		local, system bool
	}{
		"qemu:///system":                       {"qemu:///system", true, true},
		"qemu:///session":                      {"qemu:///session", true, false},
		"qemu+unix:///system?socket=/x":        {"qemu+unix:///system?socket=/x", true, true},
		"qemu+ssh://root@h:2222/system":        {"qemu+ssh://root@h:2222/system?no_tty=1", false, true},
		"qemu+ssh://h/system?no_tty=0":         {"qemu+ssh://h/system?no_tty=0", false, true},
		"qemu+ssh://h/session?keyfile=/home/x": {"qemu+ssh://h/session?keyfile=%2Fhome%2Fx&no_tty=1", false, false},
		"qemu+tls://h/system":                  {"qemu+tls://h/system", false, true},
	} {
		full, err := checkURI(uri)
		c := &Conn{URI: full}
		if err != nil || full != want.full || c.Local() != want.local || c.system() != want.system {
			t.Errorf("%s: got %s, local %v, system %v, %v, want %+v", uri, full, c.Local(), c.system(), err, want)
		}
	}
}
