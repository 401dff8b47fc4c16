package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/report/live"
)

func newUICmd(a *app) *cobra.Command {
	listen, tokenFile, db := "127.0.0.1:0", "", ""
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve labs, studies and results as live pages to this machine, and metrics to Prometheus",
		Long: `Serves pages to a browser on this machine until Ctrl-C: running labs with the counters of their fabric, studies as they run, stored
results. Nothing can be changed there. The address that is printed has a token in it; the browser keeps a cookie in its place. It
listens on this machine's own address alone; to see the pages from elsewhere, take the same port on both ends of a tunnel:
ssh -L 8080:127.0.0.1:8080 HOST.

/metrics is for Prometheus: counters of the fabric and of RDMA devices, states of nodes and checks, progress of studies. It takes
the token as a bearer. With --token-file the token is read from a file, which is made if it is not there, and so stays the same.
docs/ui.md describes the metrics.`,
		Example: `  rackless ui
  rackless ui --listen 127.0.0.1:8080 --token-file ~/.config/rackless-token`,
		Args: maxArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			addr, err := loopback(listen)
			if err != nil {
				return usagef(cmd, "--listen %v", err)
			}
			token := rand.Text() // 130 random bits
			if cmd.Flags().Changed("token-file") {
				if token, err = readToken(tokenFile, token, a.uid); err != nil {
					return fmt.Errorf("--token-file: %w", err)
				}
			}
			return a.serveUI(cmd.Context(), addr, token, db)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "`ADDRESS:PORT` on this machine; port 0 is any that is free")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "keep the token in `FILE`, for Prometheus")
	dbFlag(cmd, &db)
	return cmd
}

// loopback refuses every address that others could connect to.
func loopback(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("%s: want an address and a port, such as 127.0.0.1:8080", listen)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", fmt.Errorf("%s: %q is no port", listen, port)
	}
	if host == "localhost" {
		host = "127.0.0.1" // what the name leads to is not in our hands
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() || ip.Zone() != "" {
		return "", fmt.Errorf("%s: the pages are for this machine alone: want 127.0.0.1:PORT or [::1]:PORT; for "+
			"another machine: ssh -L 8080:127.0.0.1:8080 HOST", listen)
	}
	return net.JoinHostPort(ip.Unmap().String(), port), nil
}

// A token that somebody has chosen has to be as long as 128 random bits are in letters and digits.
// Other characters would need quotes somewhere on their way.
var goodToken = regexp.MustCompile(`^[A-Za-z0-9_-]{22,512}$`)

// readToken returns the token in a file, and makes the file with a fresh one if it is not there.
func readToken(path, fresh string, uid int) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, fresh)
		return fresh, errors.Join(err, f.Close())
	}
	if !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// a pipe that nobody writes to is refused below, and not waited for
	f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || ok && int(st.Uid) != uid {
		return "", fmt.Errorf("%s is no file of yours: name another", path)
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

// serveUI serves until ctx ends.
func (a *app) serveUI(ctx context.Context, addr, token, db string) error {
	d, err := a.dirs()
	if err != nil {
		return err
	}
	if db, err = a.dbPath(db); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	addr = l.Addr().String()
	server := &http.Server{
		Handler: live.New(&uiSource{app: a, dirs: d, db: db}, live.Options{Addr: addr, Token: token,
			Version: version}),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       log.New(a.err, "", 0),
	}
	fmt.Fprintf(a.out, "http://%s/?token=%s\n", addr, url.QueryEscape(token))
	fmt.Fprintln(a.err, "open it in a browser on this machine; Ctrl-C ends it")
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// What is being answered is finished, if it does not take long.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
