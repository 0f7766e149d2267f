"""A Flower app: FedAvg, two clients, three rounds. `python app.py` writes its models into run/ (flwr 1.40.0)."""

import json
from pathlib import Path

import torch
from digits_task import deal_examples, load_data, make_net
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from save_models import save_models
from torch.nn.functional import cross_entropy

FOLDER = Path(__file__).parent / "run"
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message, context):
    """Train one client for two epochs of SGD."""
    client, server_round = context.node_config["partition-id"], message.content["config"]["server-round"]
    (images, labels), _ = load_data()
    own = torch.tensor(deal_examples()[client])
    net = make_net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 * server_round + client)
    for _ in range(2):
        for batch in own[torch.randperm(len(own), generator=generator)].split(32):
            optimizer.zero_grad()
            cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(own), "partition-id": client})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid, context):
    """Run three rounds."""
    torch.manual_seed(0)
    strategy = save_models(FedAvg(fraction_evaluate=0.0), FOLDER)
    strategy.start(grid, ArrayRecord(make_net().state_dict()), num_rounds=3)
    (FOLDER / "clients.json").write_text(json.dumps(deal_examples()))


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=2)
