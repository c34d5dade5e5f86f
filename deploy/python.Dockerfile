# The image of workers that run PyTorch programs. The wheel comes first (docs/python.md):
#   pip wheel --no-deps -w python/dist ./python
#   docker build -t kintsugi-python -f deploy/python.Dockerfile .
# The libraries of the wheel are those of the machine that made it: `python python/build_wheel.py x86_64` makes
# one for every Linux with glibc 2.28 or newer.
ARG PYTHON_IMAGE=python:3.12-slim
FROM ${PYTHON_IMAGE}
# For GPUs: --build-arg TORCH_INDEX=https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY python/dist/kintsugi_ps-*.whl /wheels/
RUN pip install --no-cache-dir torch --index-url "${TORCH_INDEX}" && \
    pip install --no-cache-dir /wheels/kintsugi_ps-*"$(uname -m)".whl
COPY examples/python/dlrm.py /app/
ENV PYTHONUNBUFFERED=1
USER 1000:1000
