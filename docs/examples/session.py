import sys, grpc, psycopg
from tidegate.v1 import routing_service_pb2 as api, routing_service_pb2_grpc as rpc, session_pb2

database, leader, service = sys.argv[1:]  # "dbname=shop" 127.0.0.1:5432 127.0.0.1:7400
routing = rpc.RoutingServiceStub(grpc.insecure_channel(service))

def connect(address):
    host, port = address.rsplit(":", 1)
    return psycopg.connect(database, host=host, port=port, autocommit=True)

with connect(leader) as db:  # Write, and record what was written before anybody is told.
    db.execute("CREATE TABLE IF NOT EXISTS greetings (text text)")
    db.execute("INSERT INTO greetings VALUES ('hello')")
    capture = db.execute("SELECT tidegate.capture()").fetchone()[0]
token = routing.Record(api.RecordRequest(evidence=capture), timeout=2).token  # For the browser.

mine = session_pb2.Session(tokens=[token])  # The next request: where may this session read?
answer = routing.SelectReplica(api.SelectReplicaRequest(session=mine, partition="main"), timeout=2)
if not answer.HasField("served"):
    sys.exit(f"no node may serve this read now: {answer}")
with connect(answer.served.node.addresses[0]) as db:
    life = db.execute("SELECT tidegate.incarnation()").fetchone()[0]
    if life not in answer.served.acceptable_incarnations:
        sys.exit("the server was restarted since: select again")
    print(db.execute("SELECT text FROM greetings").fetchall(), "from", answer.served.node.name)
    sample = db.execute("SELECT tidegate.sample()").fetchone()[0]  # Never go back behind it.
token = routing.Record(api.RecordRequest(session=mine, evidence=sample), timeout=2).token or token
