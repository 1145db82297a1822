// Reads a Dockerfile as `docker build` does, with the frontend of a version of BuildKit, and prints the images that it
// builds from. Arguments: the file, and a platform such as linux/arm64.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// Stands for a registry where every image exists and is empty.
type registry struct{}

func (registry) ResolveImageConfig(_ context.Context, name string, opt sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	fmt.Println(name)
	config := []byte(`{"architecture":"any","os":"linux","rootfs":{"type":"layers"}}`)
	return name, digest.FromBytes(config), config, nil
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	platform := strings.Split(os.Args[2], "/")
	target := ocispecs.Platform{OS: platform[0], Architecture: platform[1]}
	build := ocispecs.Platform{OS: "linux", Architecture: "amd64"}
	options := dockerfile2llb.ConvertOpt{
		Config:         dockerui.Config{BuildPlatforms: []ocispecs.Platform{build}},
		TargetPlatform: &target,
		MetaResolver:   registry{},
	}
	// The error is the last result, of how many depends on the version.
	arguments := []reflect.Value{reflect.ValueOf(context.Background()), reflect.ValueOf(text), reflect.ValueOf(options)}
	results := reflect.ValueOf(dockerfile2llb.Dockerfile2LLB).Call(arguments)
	if err, failed := results[len(results)-1].Interface().(error); failed {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
