"""A `SimKube` as a command meets it: over HTTP, with a kubeconfig."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import yaml
from simforward import serve
from typer.testing import CliRunner
from walrus_operator.cli.app import app
from walrus_operator.objects import KINDS, Ref


class Kubernetes:
    """A `SimKube` over HTTP, for one namespace: it is read, and annotations of its clusters are written."""

    def __init__(self, kube):
        self.asked = []
        self.forbidden = set()
        self.denied = None  # what is answered to every write: a code and a message
        self.moves = lambda: None  # what happens whenever somebody looks at a cluster
        self.forwards = {}  # pod -> port of this machine to which its Admin port is forwarded
        self.date = None  # what the API server takes for the time, if not this machine's
        self.lacking = set()  # (verb, resource) that no account may
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                server.asked.append(url.path)
                plural = url.path.rpartition("/")[2]
                if plural == "portforward":
                    self._forward(url)
                elif url.path == "/version":
                    self._answer(200, b"{}")
                elif plural == "log":
                    self._answer(200, f"a line of {url.path.split('/')[-2]}\n".encode())
                elif (one := self._looked_at(url.path)) is not None:
                    self._answer(200, json.dumps(one).encode())
                elif plural in server.forbidden:
                    self._answer(403, json.dumps({"message": f"{plural} is forbidden"}).encode())
                elif plural not in [kind.plural for kind in KINDS.values()]:
                    self._answer(404, b"{}")
                else:
                    label = parse_qs(url.query).get("labelSelector", [""])[0]
                    namespace = url.path.split("/")[-2]
                    found = self._found(plural, namespace, label)
                    self._answer(200, json.dumps({"metadata": {}, "items": found}).encode())

            def _forward(self, url):
                pod, port = url.path.split("/")[-2], int(parse_qs(url.query)["ports"][0])
                if "portforward" in server.forbidden or pod not in server.forwards:
                    self._answer(403 if "portforward" in server.forbidden else 500, b"{}")
                else:
                    serve(self, port, server.forwards[pod])

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert urlsplit(self.path).path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
                wanted = asked["spec"]["resourceAttributes"]
                resource = "/".join(filter(None, (wanted["resource"], wanted["subresource"])))
                if "subjectaccessreviews" in server.forbidden:
                    self._answer(403, json.dumps({"message": "subjectaccessreviews is forbidden"}).encode())
                else:
                    allowed = (wanted["verb"], resource) not in server.lacking
                    self._answer(201, json.dumps({**asked, "status": {"allowed": allowed}}).encode())

            def date_time_string(self, timestamp=None):
                return server.date or super().date_time_string(timestamp)

            def do_PATCH(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = urlsplit(self.path).path
                server.asked.append(f"PATCH {path}")
                found = self._one(path)
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                assert body.keys() == {"metadata"}
                assert body["metadata"].keys() == {"uid", "annotations"}
                if server.denied is not None:
                    self._answer(server.denied[0], json.dumps({"message": server.denied[1]}).encode())
                elif found is None:
                    self._answer(404, json.dumps({"message": "not found"}).encode())
                elif found["metadata"]["uid"] != body["metadata"]["uid"]:
                    self._answer(409, json.dumps({"message": "Precondition failed: UID"}).encode())
                else:
                    found["metadata"]["annotations"] |= body["metadata"]["annotations"]
                    self._answer(200, json.dumps(found).encode())

            def _looked_at(self, path):
                if "/walrusclusters/" in path:
                    server.moves()
                return self._one(path)

            def _one(self, path):
                *before, plural, name = path.split("/")
                kinds = [one for one in KINDS.values() if one.plural == plural]
                namespace = before[-1] if before[-2:-1] == ["namespaces"] else ""
                return kube.objects.get(Ref(kinds[0].name, namespace, name)) if kinds else None

            def _found(self, plural, namespace, label):
                kind = next(one for one in KINDS.values() if one.plural == plural)
                wanted = (kind.name, namespace)
                found = [one for ref, one in sorted(kube.objects.items()) if (ref.kind, ref.namespace) == wanted]
                wanted = dict(part.split("=") for part in label.split(",") if part)
                return [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]

            def _answer(self, code, body):
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def kubeconfig(server, folder, monkeypatch):
    """Commands ask this server, and write their files into the folder."""
    told = {
        "current-context": "sim",
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim", "namespace": "shop"}}],
        "clusters": [{"name": "sim", "cluster": {"server": f"http://127.0.0.1:{server.http.server_address[1]}"}}],
        "users": [{"name": "sim", "user": {"token": "t"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(told))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(folder / "config"))
    monkeypatch.chdir(folder)


def run(*arguments, answer=None):
    """What a command prints; what it fails with is raised."""
    result = CliRunner().invoke(app, list(arguments), input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output
