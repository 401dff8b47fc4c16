// Package ssh connects to full nodes by ssh, with the keys of a lab and without a network or root: the agent starts
// sshd in the node, on a port of the machine that ends in a socket in the node's directory.
package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/vm/guest"
)

const (
	fileKey     = "id_ed25519"
	fileHostKey = "host_ed25519"
	fileKnown   = "known_hosts"
)

// EnsureKeys makes a lab's keys once.
func EnsureKeys(lab string) (*guest.Keys, error) {
	var k guest.Keys
	var err error
	if k.Private, k.Public, err = ensure(filepath.Join(lab, fileKey)); err != nil {
		return nil, err
	}
	if k.HostPrivate, k.HostPublic, err = ensure(filepath.Join(lab, fileHostKey)); err != nil {
		return nil, err
	}
	// For any host name, because a node's port leads to no other machine.
	return &k, atomicfile.WriteFile(filepath.Join(lab, fileKnown), []byte("* ssh-ed25519 "+k.HostPublic+"\n"), 0o600)
}

func ensure(path string) (private, public string, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		b, err = newKey()
		if err == nil {
			err = atomicfile.WriteFile(path, b, 0o600)
		}
	}
	if err != nil {
		return "", "", err
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w; rackless down, then up, makes another one", path, err)
	}
	block, _ := pem.Decode(b) // found by ParsePrivateKey
	return base64.StdEncoding.EncodeToString(block.Bytes),
		base64.StdEncoding.EncodeToString(signer.PublicKey().Marshal()), nil
}

func newKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "rackless")
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}

// ErrNoSSH is returned for a node without an ssh server.
var ErrNoSSH = errors.New("has no ssh server")

// options exclude the user's own configuration. self is this program, which carries the connection.
func options(labDir, labName, self string) []string {
	proxy := strings.ReplaceAll(words.Quote(self), "%", "%%") + " ssh --stdio " + words.Quote(labName) + "/%h"
	args := []string{"-F", "none"}
	for _, o := range []string{
		"ProxyCommand=" + proxy, "User=root", "IdentityFile=" + filepath.Join(labDir, fileKey), "IdentitiesOnly=yes",
		"IdentityAgent=none", "UserKnownHostsFile=" + filepath.Join(labDir, fileKnown), "GlobalKnownHostsFile=none",
		"StrictHostKeyChecking=yes", "LogLevel=ERROR", "KexAlgorithms=^curve25519-sha256",
		"ConnectTimeout=120", // an sshd that could not start is silent
	} {
		args = append(args, "-o", o)
	}
	return args
}
