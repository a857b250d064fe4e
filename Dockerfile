# The image is the binary, a configuration and the certificates of public authorities.
#
#   docker build -t weir .
#   docker run --rm -p 8080:8080 weir
#   docker run --rm -p 8080:8080 -v "$PWD/my:/etc/weir:ro" weir      with my/config.toml
#   docker run --rm weir check                                       any other command

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
# Linked statically, the binary needs no C library beside it. A target that is named keeps these
# flags away from what runs while building.
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN rustc -vV | sed -n 's/^host: //p' > target-triple

# What Weir depends on takes minutes and changes seldom, so it is built before the source is there.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src benches tests/it tests/model \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs benches/route.rs benches/decision.rs tests/it/main.rs tests/model/main.rs \
    && cargo build --release --locked --target "$(cat target-triple)"

COPY src src
COPY lua lua
COPY config/config.toml config/config.toml
# Cargo tells by their times what has changed, and the times of a checkout are of no use for that.
RUN touch src/main.rs src/lib.rs \
    && cargo build --release --locked --target "$(cat target-triple)"

# The default configuration, but for metrics that can be scraped from outside the container: without
# a token an admin listener that others reach has /metrics, /healthz and /readyz, and nothing else.
RUN mkdir -p image/usr/bin image/etc/weir image/etc/ssl/certs image/var/lib/weir \
    && cp "target/$(cat target-triple)/release/weir" image/usr/bin/weir \
    && sed 's/^listen = "127\.0\.0\.1:9090"$/listen = "0.0.0.0:9090"/' config/config.toml > image/etc/weir/config.toml \
    && grep -q '^listen = "0.0.0.0:9090"$' image/etc/weir/config.toml \
    && cp /etc/ssl/certs/ca-certificates.crt image/etc/ssl/certs/ \
    && chown 65532:65532 image/var/lib/weir \
    && image/usr/bin/weir check image/etc/weir/config.toml

FROM scratch
LABEL org.opencontainers.image.title="Weir" \
      org.opencontainers.image.description="An HTTP reverse proxy that does one thing: exact, explainable rate limiting" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /build/image /
# For what is to outlive the container, such as store.snapshot: mount a volume here.
WORKDIR /var/lib/weir
ENV WEIR_CONFIG=/etc/weir/config.toml
USER 65532:65532
EXPOSE 8080 9090
# Drains: give it longer than server.drain before it is killed (docker stop -t 35).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 CMD ["weir", "health"]
ENTRYPOINT ["weir"]
CMD ["run"]
