// Package ui serves labs, studies and results of a user as live pages to this machine, and as metrics to Prometheus.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/report/live"
)

// Loopback returns the address to listen at, or an error if other machines could reach it.
func Loopback(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("%s: want an address and a port, such as 127.0.0.1:8080", listen)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", fmt.Errorf("%s: %q is not a port", listen, port)
	}
	if host == "localhost" {
		host = "127.0.0.1" // it might resolve to another
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() || ip.Zone() != "" {
		return "", fmt.Errorf("%s: the pages are for this machine alone: want 127.0.0.1:PORT or [::1]:PORT; for "+
			"another machine: ssh -L 8080:127.0.0.1:8080 HOST", listen)
	}
	return net.JoinHostPort(ip.Unmap().String(), port), nil
}

// goodToken requires 22 letters and digits, which hold 128 random bits. Others would need quoting in a shell, an
// address or a header.
var goodToken = regexp.MustCompile(`^[A-Za-z0-9_-]{22,512}$`)

// ReadToken returns the token in a file, which it creates with fresh if missing.
func ReadToken(path, fresh string, uid int) (string, error) {
	// If two programs start at once, one creates the token and the other reads it.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, fresh)
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path) // a partial one would be rejected
		}
		return fresh, err
	}
	if !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// O_NONBLOCK: a pipe is rejected below.
	f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	// The name may refer to another file by now. The owner of the file can reveal its token.
	if st, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || ok && int(st.Uid) != uid {
		return "", fmt.Errorf("%s is not your file: name another", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o, and others can read the token: chmod 600 %s", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if !goodToken.MatchString(token) {
		return "", fmt.Errorf("%s: want 22 letters, digits, - or _, or more, drawn at random; without the file, "+
			"one is made", path)
	}
	return token, nil
}

// Serve serves the pages of a source until ctx is done. Errors of single connections are logged to errs.
func Serve(ctx context.Context, l net.Listener, s *Source, token, by string, errs *log.Logger) error {
	// An idle connection of a client without a token must not stay open.
	pages := live.New(s, live.Options{Addr: l.Addr().String(), Token: token, Version: by})
	sampled, stop := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	sampling.Go(func() { pages.Sample(sampled) })
	defer sampling.Wait()
	defer stop()
	server := &http.Server{
		Handler:           pages,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       errs,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
