// Package sshtest provides an ssh server for tests, which accepts one key.
package sshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// A Server listens on a local port.
type Server struct {
	Addr net.Addr
	Key  string

	io.Closer
}

// Start writes the client's key to the file "key" in dir. shell returns the command in place of a login shell.
func Start(dir string, shell func(ctx context.Context, command string) *exec.Cmd) (*Server, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	allowed, err := gossh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	block, err := gossh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &ssh.Server{
		Handler:          func(s ssh.Session) { _ = s.Exit(run(s, shell)) },
		PublicKeyHandler: func(_ ssh.Context, k ssh.PublicKey) bool { return ssh.KeysEqual(k, allowed.PublicKey()) },
	}
	go func() { _ = server.Serve(listener) }()
	return &Server{listener.Addr(), key, server}, nil
}

// run lets the command survive the connection, so that a test can check for leftovers.
func run(s ssh.Session, shell func(ctx context.Context, command string) *exec.Cmd) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := shell(ctx, s.RawCommand())
	c.Stdout, c.Stderr = s, s.Stderr()
	in, err := c.StdinPipe()
	if err != nil || c.Start() != nil {
		return 255
	}
	go func() {
		_, _ = io.Copy(in, s)
		in.Close()
	}()
	_ = c.Wait()
	return c.ProcessState.ExitCode() & 0xff // 255 if a signal ended it
}
