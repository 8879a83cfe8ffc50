package main

import (
	"fmt"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// locations are the places where users find a release.
type locations struct {
	source   string // the URL of the repository
	registry string // of the images and the chart
}

var (
	repositoryForm = regexp.MustCompile(`^github\.com/([\w-]+)/([\w.-]+)$`)
	versionForm    = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

// locate derives the places from the repository that publishes, so that a fork needs to change nothing else. GitHub
// serves the registry of OWNER as ghcr.io/OWNER, in lower case.
func locate(repository, version string) (locations, error) {
	match := repositoryForm.FindStringSubmatch(repository)
	if match == nil {
		return locations{}, fmt.Errorf("the repository %q is not of the form github.com/OWNER/NAME", repository)
	}
	if !versionForm.MatchString(version) {
		return locations{}, fmt.Errorf("the version %q is no semantic version with a v, such as v0.1.0", version)
	}
	return locations{
		source:   "https://" + repository,
		registry: "ghcr.io/" + strings.ToLower(match[1]),
	}, nil
}

// imageRepository returns the name of a product's image, without a tag.
func (l locations) imageRepository(p product) string { return l.registry + "/" + p.image }

// imageByDigest returns the full name of the manager's image.
func (l locations) imageByDigest(version string, digest v1.Hash) string {
	return l.imageRepository(manager) + ":" + tag(version) + "@" + digest.String()
}

// tag returns the version as a tag. A tag cannot have a +; Helm puts an underscore in its place.
func tag(version string) string { return strings.ReplaceAll(version, "+", "_") }
