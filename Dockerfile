# CPU image of `maskwright serve`; the model is mounted at /model.
FROM python:3.12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /maskwright
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# PyTorch's index of CPU builds (its installation page shows the address); without it, pip takes gigabytes of CUDA.
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir -c constraints.txt '.[serve]'
RUN useradd --create-home maskwright
USER maskwright
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:8000/health')"]
CMD ["maskwright", "serve", "/model", "--host", "0.0.0.0"]
