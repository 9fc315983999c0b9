# docker build -t jbrl .                                CPU
# docker build -t jbrl --build-arg "JAX=jax[cuda13]" .  NVIDIA GPU; run with --gpus all
# docker run --rm -v "$PWD/out:/jbrl/out" jbrl          the quick study; its report is in out/quick
# docker run --rm jbrl make test
FROM python:3.12-slim
ARG JAX=jax
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /jbrl
COPY . .
RUN make .venv/.has-core && .venv/bin/pip install --no-cache-dir --constraint constraints.txt "$JAX"
CMD ["make", "study"]
