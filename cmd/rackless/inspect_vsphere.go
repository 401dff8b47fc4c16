package main

import (
	"context"
	"os"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/inspect/remote"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/vm/vsphere"
)

const sshScheme = "ssh://"

var schemes = map[string]func(context.Context, string) (*topology.Host, error){
	lab.VSphereScheme: vsphere.ReadHost,
	sshScheme: func(ctx context.Context, name string) (*topology.Host, error) {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return remote.Client{Program: program}.Read(ctx, name, nil)
	},
}

func vsphereJobs(ctx context.Context, name string) (jobs inspect.Jobs, err error) {
	conn, err := vsphere.Open(ctx, "")
	if err != nil {
		return jobs, err
	}
	jobs.Close = func() { conn.Close(context.WithoutCancel(ctx)) } // a session also ends by itself
	hosts := []string{name}
	if name == "" {
		jobs.Many = true
		if hosts, err = conn.Hosts(ctx); err != nil {
			jobs.Close()
			return jobs, err
		}
	}
	for _, h := range hosts {
		jobs.All = append(jobs.All, inspect.Job{Name: lab.VSphereScheme + h,
			Read: func(ctx context.Context) (*topology.Host, error) { return conn.Read(ctx, h) }})
	}
	return jobs, nil
}
