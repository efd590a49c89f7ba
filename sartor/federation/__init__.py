"""Real federations: sites with files of their own join a server, agree, and play the same rounds as a simulation."""
