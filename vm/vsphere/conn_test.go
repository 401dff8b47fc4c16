package vsphere_test

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/vm/vsphere"
	"github.com/rackless/rackless/vm/vspheretest"
)

func TestLogin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	full := map[string]string{"GOVC_URL": "https://vc.example.org", "GOVC_USERNAME": "lab", "GOVC_PASSWORD": "s3cret"}
	with := func(pairs ...string) map[string]string {
		env := maps.Clone(full)
		for i := 0; i < len(pairs); i += 2 {
			env[pairs[i]] = pairs[i+1]
		}
		return env
	}
	for name, test := range map[string]struct {
		env     map[string]string
		want    string
		wantErr string
	}{
		"of the environment": {env: full, want: "https://vc.example.org/sdk"},
		"without a check of the certificate": {env: with("GOVC_INSECURE", "true"),
			want: "https://vc.example.org/sdk?no_verify=1"},
		"user and password in the URL are not said": {env: with("GOVC_URL", "https://a:s3cret@vc/sdk"),
			want: "https://vc/sdk"},
		"of a file": {env: map[string]string{"RACKLESS_VSPHERE": file("good",
			"# of the lab\nexport GOVC_URL=vc.example.org\nGOVC_USERNAME=\"lab\"\nGOVC_PASSWORD='s3=cret'\n", 0o600)},
			want: "https://vc.example.org/sdk"},
		"a file that others may read": {env: map[string]string{"RACKLESS_VSPHERE": file("open", "", 0o640)},
			wantErr: "has mode 0640, and it holds a password: chmod 600"},
		"a file with another line": {env: map[string]string{"RACKLESS_VSPHERE": file("odd",
			"GOVC_URL=a\nPASSWORD=s3cret", 0o600)},
			wantErr: "odd:2: want GOVC_URL=VALUE"},
		"a file that is not there": {env: map[string]string{"RACKLESS_VSPHERE": filepath.Join(dir, "none")},
			wantErr: "no such file"},
		"without encryption": {env: with("GOVC_URL", "http://vc"), wantErr: "want https://"},
		"nobody": {env: map[string]string{"GOVC_URL": "vc"},
			wantErr: "GOVC_USERNAME and GOVC_PASSWORD are not set"},
		"nowhere": {env: map[string]string{}, wantErr: "set GOVC_URL, GOVC_USERNAME and GOVC_PASSWORD"},
		"a login of guests that is none": {env: with("GOVC_GUEST_LOGIN", "s3cret"),
			wantErr: "GOVC_GUEST_LOGIN is not USER:PASSWORD"},
		"not a truth value": {env: with("GOVC_INSECURE", "perhaps"), wantErr: `GOVC_INSECURE is "perhaps"`},
		"not a URL":         {env: with("GOVC_URL", "https://a:s3cret@%zz"), wantErr: "GOVC_URL is not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := test.env
			if env["RACKLESS_VSPHERE"] == "" {
				env = maps.Clone(env)
				env["RACKLESS_VSPHERE"] = file(strings.ReplaceAll(name, " ", "-"), "", 0o600)
			}
			l, err := vsphere.ReadLogin(func(name string) string { return env[name] })
			text := ""
			if err != nil {
				text = err.Error()
			} else {
				text = l.String()
			}
			if err == nil && text != test.want ||
				err != nil && (test.wantErr == "" || !strings.Contains(text, test.wantErr)) {
				t.Errorf("got %q, want %q or error %q", text, test.want, test.wantErr)
			}
			if strings.Contains(text, "s3cret") {
				t.Errorf("%q tells the password", text)
			}
		})
	}
}

func connect(t *testing.T, s *vspheretest.Server) *vsphere.Conn {
	t.Helper()
	l, err := vsphere.ReadLogin(s.Env)
	if err != nil {
		t.Fatal(err)
	}
	c, err := vsphere.Connect(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheCertificateIsChecked(t *testing.T) {
	t.Parallel()
	s := vspheretest.New(t)
	l, err := vsphere.ReadLogin(func(name string) string {
		if name == "GOVC_INSECURE" {
			return ""
		}
		return s.Env(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vsphere.Connect(t.Context(), l); err == nil || !strings.Contains(err.Error(), "--insecure trusts") {
		t.Errorf("got %v, want an error that names --insecure", err)
	}
}

// A TLS handshake costs more than a call, so connections stay open, even under many calls.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	s := vspheretest.New(t)
	var closed atomic.Int64
	state := s.HTTP.ConnState
	s.HTTP.ConnState = func(c net.Conn, to http.ConnState) {
		if to == http.StateClosed {
			closed.Add(1)
		}
		state(c, to)
	}
	c := connect(t, s)
	for range 2 {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := c.Read(t.Context(), vspheretest.Host); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if n := closed.Load(); n > 0 {
		t.Errorf("%d connections were closed before the session ended", n)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReadHost(t *testing.T) {
	t.Parallel()
	s := vspheretest.New(t)
	c := connect(t, s)
	names, err := c.Hosts(t.Context())
	if want := []string{"DC0_C0_H0", "DC0_C0_H1", "DC0_C0_H2", "DC0_H0"}; err != nil || !cmp.Equal(want, names) {
		t.Errorf("hosts: got %v, %v, want %v", names, err, want)
	}
	h, err := c.Read(t.Context(), vspheretest.Host)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "host.json"), append(got, '\n'))
	file := s.Save(t, t.TempDir())
	saved, err := inspect.ReadPath(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	saved.Provenance = h.Provenance
	if diff := cmp.Diff(h, saved); diff != "" {
		t.Errorf("read from what govc saves it is another host (-live +saved):\n%s", diff)
	}
	// A host is read without its virtual machines, and reports it.
	alone := filepath.Join(t.TempDir(), "host.xml")
	if err := os.Rename(file, alone); err != nil {
		t.Fatal(err)
	}
	saved, err = inspect.ReadPath(t.Context(), alone, nil)
	if err != nil || len(saved.Tenants) > 0 || len(saved.Unread) != 2 ||
		saved.Unread[1].Why != "2 of 2 are not among the files beside that of the host" {
		t.Errorf("a host that was saved alone: %v, tenants %v, unread %v", err, saved.Tenants, saved.Unread)
	}
	_, err = c.Read(t.Context(), "esx99")
	if err == nil || !strings.Contains(err.Error(), "no host \"esx99\"; it has DC0_C0_H0") {
		t.Errorf("a host that is not there: got %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
