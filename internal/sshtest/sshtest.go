// Package sshtest is a server of ssh for tests: it lets in one key, and runs commands as the test says.
package sshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

// A Server listens on a port of this machine.
type Server struct {
	Addr net.Addr
	Key  string // the file of the private key that it lets in

	listener net.Listener
	config   *ssh.ServerConfig
	shell    func(ctx context.Context, command string) *exec.Cmd
}

// Start starts a server, with the key of its client in a file "key" of dir. shell makes what a login shell would run
// for the command of a session.
func Start(dir string, shell func(ctx context.Context, command string) *exec.Cmd) (*Server, error) {
	host, _, err := newKey()
	if err != nil {
		return nil, err
	}
	client, private, err := newKey()
	if err != nil {
		return nil, err
	}
	s := &Server{Key: filepath.Join(dir, "key"), shell: shell}
	if err := os.WriteFile(s.Key, private, 0o600); err != nil {
		return nil, err
	}
	allowed := string(client.PublicKey().Marshal())
	s.config = &ssh.ServerConfig{}
	s.config.PublicKeyCallback = func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != allowed {
			return nil, errors.New("not the key of this server")
		}
		return nil, nil
	}
	s.config.AddHostKey(host)
	if s.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.Addr = s.listener.Addr()
	go func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return // closed
			}
			go s.serve(conn)
		}
	}()
	return s, nil
}

// Close stops listening. Sessions go on until their clients leave.
func (s *Server) Close() error { return s.listener.Close() }

// newKey returns a key, and it as the file that ssh reads.
func newKey() (ssh.Signer, []byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, nil, err
	}
	return signer, pem.EncodeToMemory(block), nil
}

// serve answers one client until it leaves.
func (s *Server) serve(conn net.Conn) {
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		conn.Close()
		return // turned away
	}
	defer c.Close()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, asked, err := offered.Accept()
		if err != nil {
			return
		}
		go s.session(channel, asked)
	}
}

// session runs the command of a session.
func (s *Server) session(channel ssh.Channel, asked <-chan *ssh.Request) {
	defer channel.Close()
	for r := range asked {
		var exec struct{ Command string }
		ok := r.Type == "exec" && ssh.Unmarshal(r.Payload, &exec) == nil
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if !ok {
			continue
		}
		go ssh.DiscardRequests(asked)
		status := struct{ Status uint32 }{s.run(channel, exec.Command)}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}

// run runs a command with a channel as its input and output, and returns its exit status.
func (s *Server) run(channel ssh.Channel, command string) uint32 {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := s.shell(ctx, command)
	c.Stdout, c.Stderr = channel, channel.Stderr()
	in, err := c.StdinPipe()
	if err != nil {
		return 255
	}
	if err := c.Start(); err != nil {
		return 255
	}
	go func() {
		_, _ = io.Copy(in, channel)
		in.Close()
	}()
	err = c.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return uint32(exit.ExitCode())
	}
	return 255
}
