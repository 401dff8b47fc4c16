package ssh

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
)

func TestKeysStay(t *testing.T) {
	dir := t.TempDir()
	first, err := EnsureKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := EnsureKeys(dir)
	if err != nil || *again != *first {
		t.Errorf("the second time: %v, %v", again, err)
	}
	if first.Private == first.HostPrivate || first.Public == first.HostPublic {
		t.Error("users and servers have one key")
	}
	for _, name := range []string{fileKey, fileHostKey, fileKnown} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	file := "-----BEGIN OPENSSH PRIVATE KEY-----\n" + first.Private + "\n-----END OPENSSH PRIVATE KEY-----\n"
	signer, err := ssh.ParsePrivateKey([]byte(file))
	if err != nil || base64.StdEncoding.EncodeToString(signer.PublicKey().Marshal()) != first.Public {
		t.Errorf("the private key is another one: %v", err)
	}
	known, err := os.ReadFile(filepath.Join(dir, fileKnown))
	if err != nil || string(known) != "* ssh-ed25519 "+first.HostPublic+"\n" {
		t.Errorf("known_hosts is %q, %v", known, err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileKey), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureKeys(dir); err == nil || !strings.Contains(err.Error(), "makes another one") {
		t.Errorf("a damaged key: %v", err)
	}
}

func testRack() *rack.Rack {
	l := &lab.Lab{Name: "pair", Nodes: []lab.Node{{Name: "vm00", Image: "debian-12"},
		{Name: "small", Image: "builtin"}}}
	return &rack.Rack{Lab: l, Dir: "/r/pair",
		State: &rack.State{Lab: l, Driver: "qemu", Nodes: []*rack.Node{{Name: "vm00"}, {Name: "small"}}}}
}

func TestPathsOfCopies(t *testing.T) {
	r := testRack()
	for _, tt := range []struct {
		paths, want []string
	}{
		{[]string{"a", "vm00:"}, []string{"a", "vm00:"}},
		{[]string{"pair/vm00:/etc/hosts", "./x:y"}, []string{"vm00:/etc/hosts", "./x:y"}},
		{[]string{"/a:b", "vm00:c:d"}, []string{"/a:b", "vm00:c:d"}},
		{[]string{"-x", "vm00:"}, []string{"-x", "vm00:"}},
		{[]string{":a", "vm00:"}, []string{"./:a", "vm00:"}},
	} {
		got, err := copyArgs(r, true, tt.paths)
		if err != nil || !slices.Equal(got, append([]string{"-r", "--"}, tt.want...)) {
			t.Errorf("%q: %q, %v", tt.paths, got, err)
		}
	}
	for path, want := range map[string]string{"small:x": "boots the image builtin", "vm07:x": "has no node vm07",
		"other/vm00:x": "is not of lab pair"} {
		if _, err := copyArgs(r, false, []string{"a", path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := FirstNode([]string{"/a:b", "x", "pair/vm00:y", "vm01:z"}); n != "pair/vm00" {
		t.Errorf("the first node is %q", n)
	}
}

func TestOptionsLeadThroughThisProgram(t *testing.T) {
	args := options("/r/pair", "pair", "/opt/my %d's/rackless")
	if want := `ProxyCommand='/opt/my %%d'\''s/rackless' ssh --stdio 'pair'/%h`; !slices.Contains(args, want) {
		t.Errorf("no %s in %q", want, args)
	}
	if !slices.Contains(args, "UserKnownHostsFile=/r/pair/known_hosts") {
		t.Errorf("got %q", args)
	}
}

func TestSmallNodesHaveNoSSH(t *testing.T) {
	if err := Run(testRack(), "small", nil); err == nil || !strings.Contains(err.Error(), "use rackless exec") {
		t.Errorf("got %v", err)
	}
}
