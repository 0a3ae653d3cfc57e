# Stands for prom/prometheus where no registry can be reached: Debian's package.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus wget \
    && rm -rf /var/lib/apt/lists/* && install --directory --owner=65534 /prometheus
USER 65534
ENTRYPOINT ["/usr/bin/prometheus"]
