// Consul's own program, as a dependency: `go install …@version` refuses its replace directives, which do not count here.
module consul-for-tests

go 1.25.7

require github.com/hashicorp/consul v1.22.5
