//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"
	"net/url"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/ui"
	"github.com/rackless/rackless/study/lock"
)

// newUICmd listens on loopback only, because the pages show a user's own labs.
func newUICmd(a *app) *cobra.Command {
	listen, tokenFile, db := "127.0.0.1:0", "", ""
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve labs, studies and results as live pages to this machine, and metrics to Prometheus",
		Args:  cli.MaxArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The pages have no login besides the token.
			addr, err := ui.Loopback(listen)
			if err != nil {
				return cli.Usagef(cmd, "--listen %v", err)
			}
			token := rand.Text() // 130 random bits
			if cmd.Flags().Changed("token-file") {
				if token, err = ui.ReadToken(tokenFile, token, a.uid); err != nil {
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

// listenError adds the remedy, and names no system call.
func listenError(addr string, err error) error {
	const free = "--listen 127.0.0.1:0 takes one that is free"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--listen %s: another program uses this port; %s", addr, free)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("--listen %s: only root may use this port; %s", addr, free)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("--listen %s: this machine does not have this address; %s", addr, free)
	}
	return fmt.Errorf("--listen %s: %w", addr, err)
}

func (a *app) serveUI(ctx context.Context, addr, token, db string) error {
	d, err := a.dirs()
	if err != nil {
		return err
	}
	if db, err = a.dbPath(db); err != nil {
		return err
	}
	held, err := lock.FromEnv(a.env)
	if err != nil {
		return cli.Usage(err)
	}
	// So that a browser that opens the address at once gets an answer.
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return listenError(addr, err)
	}
	fmt.Fprintf(a.out, "http://%s/?token=%s\n", l.Addr(), url.QueryEscape(token))
	fmt.Fprintln(a.err, "open it in a browser on this machine; Ctrl-C ends it")
	return ui.Serve(ctx, l, &ui.Source{Dirs: d, DB: db, Lock: held}, token, version, log.New(a.err, "", 0))
}
