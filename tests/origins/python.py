"""An origin in Python that reports what each request has spent: `python.py flask` or `python.py django`. Prints its
port; exits at the end of its input.
"""

import os
import sys
import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class QuietHandler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def flask_application():
    from flask import Flask, request

    app = Flask(__name__)

    def spend(units):
        return "page", 200, {"X-API-Cost": str(units)}

    app.add_url_rule("/search", "search", lambda: spend(4))
    app.add_url_rule("/café", "cafe", lambda: spend(5))
    app.add_url_rule("/item/<name>", "item", lambda name: spend(1))
    app.add_url_rule("/use/", "use", lambda: spend(2))
    app.add_url_rule("/use/<path:rest>", "use_rest", lambda rest: spend(2))
    app.add_url_rule("/list", "list", lambda: spend(3 if "page" in request.args else 0))
    app.register_error_handler(404, lambda _: spend(0))
    return app


def django_application():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    def spend(units):
        return HttpResponse("page", headers={"X-API-Cost": str(units)})

    class Urls:
        urlpatterns = [
            path("search", lambda request: spend(4)),
            path("search/", lambda request: spend(4)),
            path("café", lambda request: spend(5)),
            path("item/<str:name>", lambda request, name: spend(1)),
            path("use/", lambda request: spend(2)),
            path("use/<path:rest>", lambda request, rest: spend(2)),
            path("list", lambda request: spend(3 if "page" in request.GET else 0)),
        ]
        handler404 = staticmethod(lambda request, exception: spend(0))

    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=Urls, SECRET_KEY="-")
    django.setup()
    return get_wsgi_application()


application = flask_application() if sys.argv[1] == "flask" else django_application()
with make_server("127.0.0.1", 0, application, server_class=Server, handler_class=QuietHandler) as server:
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()
