FROM python:3.12-slim
RUN pip install --no-cache-dir buildgrid==0.4.4 psycopg2-binary==2.9.13
