module appset-gateway/tools/slug

go 1.22

// The versions that Argo CD uses.
require (
	github.com/gosimple/slug v1.15.0
	github.com/gosimple/unidecode v1.0.1
)
