package main

import (
	"context"

	"github.com/rackless/rackless/emulate"
	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/rack"
)

// hostEnvironment is that of a login of root on a host; what the agent runs has none of it.
// RACKLESS_CACHE is where the second disk has the image of nested nodes.
var hostEnvironment = []string{
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "RACKLESS_CACHE=/opt/rackless/cache",
}

// hostImage returns what hosts boot from, building it if need be.
func hostImage(ctx context.Context, d rack.Dirs, progress func(string)) (emulate.Boot, error) {
	img, err := image.Host.Ensure(ctx, image.Options{Cache: d.Images(), Progress: progress})
	if err != nil {
		return emulate.Boot{}, err
	}
	return emulate.Boot{Key: img.Key, Disk: img.DiskPath(), Environment: hostEnvironment}, nil
}
