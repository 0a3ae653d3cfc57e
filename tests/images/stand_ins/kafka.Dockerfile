# Stands for the images of Apache Kafka where no registry can be reached: the same version, from the jars of
# deploy/kafka/pom.xml, with as much of the images' scripts as deploy/compose.yaml and testcontainers call.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY jars /opt/kafka/libs
COPY kafka.py log4j2.properties /opt/kafka/
RUN useradd --uid 1000 --no-create-home appuser \
    && mkdir -p /opt/kafka/bin /etc/kafka/docker /etc/confluent/docker /var/lib/kafka/data \
    && cd /etc/confluent/docker && touch bash-config \
    && printf '#!/bin/sh\nset -e\npython /opt/kafka/kafka.py properties\n' > configure \
    && printf '#!/bin/sh\nexec python /opt/kafka/kafka.py launch\n' > launch \
    && printf '#!/bin/sh\nexec python /opt/kafka/kafka.py storage "$@"\n' > /usr/local/bin/kafka-storage \
    && printf '#!/bin/sh\nexec python /opt/kafka/kafka.py answers "$@"\n' > /opt/kafka/bin/kafka-broker-api-versions.sh \
    && printf '#!/bin/sh\nexec python /opt/kafka/kafka.py run\n' > /etc/kafka/docker/run \
    && chmod 755 configure launch /usr/local/bin/kafka-storage /opt/kafka/bin/* /etc/kafka/docker/run \
    && chown -R 1000 /etc/kafka /etc/confluent /var/lib/kafka
USER 1000
CMD ["/etc/kafka/docker/run"]
